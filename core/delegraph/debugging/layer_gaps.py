"""How far each layer of a program is from torch: rows, what they tell, text for people, JSON for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any, Final

from delegraph.tables import Table, print_table

__all__ = ["LayerGap", "NumericGap"]

SHOWN: Final = 10
"""Layers in a table for people."""


@dataclass(frozen=True, slots=True)
class LayerGap:
    """The difference between a value of a program and torch's value of the same call.

    `name` is the call's in the functional program, `handle` its debug handle, by which the program has it. `delegate`
    is the number of the delegate that computes it, with its `backend`; None and "" of a kernel.

    `error` is the largest difference, as a share of torch's largest value, and `allowed` what is usual for the dtype;
    `sqnr` is in dB. `nonfinite` counts the elements that are NaN or infinite on one side alone. `begins` says that
    it is wrong, and that all the layers which it reads are right. `alone` says that its delegate was cut out and
    compiled anew, with each layer's value as a result and torch's values as inputs; else it is of the program's run.
    """

    method: str
    name: str
    handle: int
    operator: str
    module: str
    line: str
    delegate: int | None
    backend: str
    error: float
    allowed: float
    sqnr: float
    nonfinite: int
    alone: bool
    begins: bool = False

    @property
    def is_wrong(self) -> bool:
        """Whether it is further from torch's value than `allowed`."""
        return bool(self.nonfinite) or not self.error <= self.allowed

    def __str__(self) -> str:
        where = f"delegate {self.delegate}, {self.backend}" if self.delegate is not None else "kernel"
        lost = f", {self.nonfinite} elements NaN or infinite" if self.nonfinite else ""
        place = "  ".join(filter(None, (self.module, self.line)))
        return f"{self.operator}  {place}  ({where}): off by {self.error:.2g} of the largest value{lost}"


@dataclass(frozen=True, slots=True)
class NumericGap:
    """A program's values beside torch's, layer by layer in the order of the model; `outputs` are those of the whole
    run, by method and position. `notes` say what could not be compared, and why."""

    layers: tuple[LayerGap, ...]
    outputs: tuple[LayerGap, ...]
    notes: tuple[str, ...] = ()

    @property
    def begins(self) -> tuple[LayerGap, ...]:
        """The layers at which wrong numbers begin."""
        return tuple(layer for layer in self.layers if layer.begins)

    @property
    def first_nonfinite(self) -> LayerGap | None:
        """The first layer that gives NaN or infinity where torch gives none."""
        return next((layer for layer in self.layers if layer.nonfinite), None)

    def worst(self, count: int = SHOWN) -> tuple[LayerGap, ...]:
        """The layers furthest from torch, the furthest first."""
        ordered = sorted(self.layers, key=lambda layer: (-bool(layer.nonfinite), -layer.error))
        return tuple(ordered[:count])

    def node_data(self) -> dict[int, float]:
        """`error` by debug handle, for the largest of a handle: what `delegraph view --overlay` paints."""
        painted: dict[int, float] = {}
        for layer in self.layers:
            painted[layer.handle] = max(painted.get(layer.handle, 0.0), layer.error)
        return painted

    def __bool__(self) -> bool:
        """Whether anything is wrong."""
        return any(layer.is_wrong for layer in (*self.layers, *self.outputs))

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers; null stands for an infinite error or SQNR."""
        return {
            "wrong": bool(self),
            "layers": list(map(_plain, self.layers)),
            "outputs": list(map(_plain, self.outputs)),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return "\n".join([*self._told(), "", str(self.table())] if self.layers else self._told())

    def print(self) -> None:
        """Print it to standard output."""
        print("\n".join(self._told()), end="\n\n")
        print_table(self.table())

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        from delegraph import notebook

        return "".join(map(notebook.paragraph, self._told())) + notebook.table(self.table())

    def table(self, count: int = SHOWN) -> Table:
        """The layers furthest from torch."""
        rows = [
            (
                f"{layer.error:.1e}",
                _decibels(layer.sqnr),
                layer.operator.removeprefix("aten::"),
                _place(layer),
                _who(layer),
            )
            for layer in self.worst(count)
        ]
        columns = ("error", "SQNR", "operator", "module, line", "by")
        return Table(f"furthest from torch, of {len(self.layers)} layers", columns, rows, frozenset(columns[:2]))

    def _told(self) -> list[str]:
        return [*self._verdict(), *(f"note: {note}" for note in self.notes)]

    def _verdict(self) -> Iterator[str]:
        first = self.first_nonfinite
        if first is not None:
            yield f"NaN or infinity begins at: {first}"
        for layer in self.begins:
            yield f"wrong numbers begin at: {layer}"
        wrong = [output for output in self.outputs if output.is_wrong]
        for output in wrong:
            yield f"{output.name} of {output.method} is off by {output.error:.2g} of its largest value"
        if wrong and not self.begins:
            yield (
                "each layer by itself is right, so a delegate is wrong as a whole: `delegraph debug MODEL --backends …`"
                " cuts it to the smallest part that is"
            )
        if not self:
            yield f"right: {len(self.layers)} layers and all outputs are within tolerance of torch"


def _plain(layer: LayerGap) -> dict[str, Any]:
    told = asdict(layer) | {"wrong": layer.is_wrong}
    return {key: None if isinstance(value, float) and not isfinite(value) else value for key, value in told.items()}


def _decibels(sqnr: float) -> str:
    return f"{sqnr:.0f} dB" if isfinite(sqnr) else "exact" if sqnr > 0 else "none"


def _place(layer: LayerGap) -> str:
    return ", ".join(filter(None, (layer.module, layer.line))) or layer.name


def _who(layer: LayerGap) -> str:
    begins = " (begins)" if layer.begins else ""
    return f"{layer.backend or 'kernel'}{begins}"


def with_beginnings(layers: Sequence[LayerGap], reads: dict[str, frozenset[str]]) -> tuple[LayerGap, ...]:
    """The layers, with `begins`. `reads` has for each layer, by name, those that it reads."""
    wrong = {(layer.method, layer.name) for layer in layers if layer.is_wrong}
    return tuple(
        replace(layer, begins=layer.is_wrong and not any((layer.method, name) in wrong for name in reads[layer.name]))
        for layer in layers
    )
