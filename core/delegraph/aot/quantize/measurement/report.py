"""Measured layers -> a report of what quantizing did: a table, JSON, a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from delegraph import notebook
from delegraph.aot.quantize.measurement.picture import bars
from delegraph.tables import Table, print_table

__all__ = ["FloatLayer", "LayerQuantization", "MethodQuantization", "QuantizationReport"]


@dataclass(frozen=True, slots=True)
class LayerQuantization:
    """One call. `sqnr` and `sqnr_in_all`, in dB, are of its result: what this layer adds to the error by itself, and
    how large the error is here (None where nothing was measured, infinite where nothing is off).

    `low` and `high` are the range of the result in float. `weight_nbytes` are those of its weights as stored,
    `float_nbytes` as they were.
    """

    name: str
    operator: str
    module: str
    recipe: str
    low: float | None
    high: float | None
    sqnr: float | None
    sqnr_in_all: float | None
    weight_nbytes: int
    float_nbytes: int


@dataclass(frozen=True, slots=True)
class FloatLayer:
    """A call that stays float, or its weights, although its recipe is another one, and why."""

    name: str
    operator: str
    module: str
    reason: str


@dataclass(frozen=True, slots=True)
class MethodQuantization:
    """One method. `output_sqnr`, in dB, is of all its outputs together on the first batch; None without data.

    `kept_float` are the calls that measuring decided to leave, by name, and `kept_layers` what they are; `left_float`
    those that cannot be otherwise; `nbytes` and `float_nbytes` of all its constants.
    """

    layers: Sequence[LayerQuantization]
    output_sqnr: float | None
    kept_float: Sequence[str]
    nbytes: int
    float_nbytes: int
    left_float: Sequence[FloatLayer] = ()
    kept_layers: Sequence[FloatLayer] = ()


@dataclass(frozen=True, slots=True)
class QuantizationReport:
    """The effects of quantizing, by method."""

    methods: Mapping[str, MethodQuantization]

    def __repr__(self) -> str:
        return f"QuantizationReport({'; '.join(table.title for table in self.tables())})"

    def __str__(self) -> str:
        return "\n\n".join(str(table) for table in self.tables())

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        return "".join(map(notebook.table, self.tables()))

    def print(self) -> None:
        """Print to standard output."""
        for table in self.tables():
            print_table(table)

    def tables(self) -> list[Table]:
        """A table for each method, and one more each for its layers that are kept or left in float."""
        tables = []
        for name, method in self.methods.items():
            kept = _float_table(f"{name}: layers kept in float", method.kept_layers)
            left = _float_table(f"{name}: layers left in float", method.left_float)
            tables += [_table(name, method), *(table for table in (kept, left) if table.rows)]
        return tables

    def to_json(self) -> dict[str, Any]:
        """As plain data; an SQNR that is infinite is None."""
        return {"methods": {name: _finite(asdict(method)) for name, method in self.methods.items()}}

    def to_svg(self) -> str:
        """A picture: a bar for each layer, as long as its SQNR, and what its weights take."""
        parts = [
            (f"{name}: {_decibels(method.output_sqnr)} in the end", [_bar(layer) for layer in method.layers])
            for name, method in self.methods.items()
        ]
        return bars("Signal to quantization noise by layer, in dB", parts)


_SHOWN = 3
"""Layers that a row of the report names."""

_COLUMNS = ("layer", "operator", "stored", "range", "SQNR alone", "in all", "weights", "of float")


def _table(name: str, method: MethodQuantization) -> Table:
    share = f"{method.nbytes / method.float_nbytes:.0%}" if method.float_nbytes else "all"
    title = f"{name}: {_decibels(method.output_sqnr)} in the end; constants {method.nbytes:,} bytes, {share} of float"
    rows = [
        (
            layer.module or layer.name,
            layer.operator,
            layer.recipe,
            "" if layer.low is None else f"{layer.low:.3g} … {layer.high:.3g}",
            _decibels(layer.sqnr),
            _decibels(layer.sqnr_in_all),
            f"{layer.weight_nbytes:,}" if layer.float_nbytes else "",
            f"{layer.weight_nbytes / layer.float_nbytes:.0%}" if layer.float_nbytes else "",
        )
        for layer in method.layers
    ]
    return Table(title, _COLUMNS, rows, frozenset(_COLUMNS[3:]))


def _float_table(title: str, layers: Sequence[FloatLayer]) -> Table:
    """A row for each operator and reason, which names a few layers."""
    same: dict[tuple[str, str], list[str]] = {}
    for layer in layers:
        same.setdefault((layer.operator, layer.reason), []).append(layer.module or layer.name)
    rows = [(_few(list(dict.fromkeys(names)), len(names)), *key) for key, names in same.items()]
    return Table(title, ("layer", "operator", "why"), rows)


def _few(names: Sequence[str], count: int) -> str:
    """The first names of so many calls."""
    shown = names[:_SHOWN]
    return ", ".join(shown) + (f" ({count} calls)" if count > len(shown) else "")


def _bar(layer: LayerQuantization) -> tuple[str, float, str]:
    value = layer.sqnr if layer.sqnr is not None else math.inf
    return layer.module or layer.name, value, f"{layer.operator}, {layer.recipe}, {_decibels(layer.sqnr)}"


def _decibels(value: float | None) -> str:
    if value is None:
        return "not measured"
    return "exact" if value == math.inf else f"{value:.1f} dB"


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
