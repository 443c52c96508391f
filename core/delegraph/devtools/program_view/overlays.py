"""JSON of tools that measured -> an overlay: a number for each node of a graph, by which it is coloured.

    {"nodes": [{"instruction": 0, "debug_id": "conv_1", "p50": 0.002, …}]}       delegraph profile --json; `run --trace
                                                                                --json` has it under "profile"
    {"methods": {"forward": {"layers": [{"module": "stem", "sqnr": 31.0, …}]}}}  delegraph quantize --json
    {"faults": [{"calls": [{"location": "net.py:12, in forward"}], …}]}          delegraph debug --json
    {"layers": [{"method": "forward", "handle": 3, "error": 0.1, …}]}            delegraph debug --against --json
    {"results": {"3/conv_1": {"value": 0.2}}}                                    node data of Model Explorer
    {"blocks.0.conv": 0.2, "net.py:12": 0.1, "3/conv_1": 0.2}                    anything else, by what it is about

A key is a node's id, `method:id`, a module's path or a line of the model's code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from delegraph.devtools.program_view.graph import GraphView, ViewNode
from delegraph.errors import InvalidArgument

__all__ = ["OVERLAYS", "Measure", "Overlay", "Ranked", "byte_overlay", "make_overlay", "ranked"]


@dataclass(frozen=True, slots=True)
class Measure:
    """The numbers of an overlay: those of a module are the `summed` ones of its nodes, or else the largest."""

    unit: str
    summed: bool


OVERLAYS: Final[Mapping[str, Measure]] = {
    "time": Measure("seconds", summed=True),
    "bytes": Measure("bytes", summed=True),
    "error": Measure("of the result", summed=False),
}


@dataclass(frozen=True, slots=True)
class Overlay:
    """Numbers by node: by method and id. What is not measured is not in it."""

    name: str
    values: Mapping[tuple[str, str], float]

    @property
    def measure(self) -> Measure:
        """The unit of the numbers, and how they add up."""
        return OVERLAYS[self.name]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A node and its number."""

    method: str
    node: ViewNode
    value: float


def ranked(overlay: Overlay, graphs: Iterable[GraphView], most: int) -> list[Ranked]:
    """The `most` nodes with the largest numbers, the largest first; none of those with 0."""
    rows = [
        Ranked(graph.method, node, value)
        for graph in graphs
        for node in graph.nodes
        if (value := overlay.values.get((graph.method, node.id), 0.0)) > 0
    ]
    return sorted(rows, key=lambda row: -row.value)[:most]


def byte_overlay(graphs: Iterable[GraphView]) -> Overlay:
    """The bytes of the weights that nodes read, in the file."""
    values = {(graph.method, node.id): float(node.weight_nbytes) for graph in graphs for node in graph.nodes}
    return Overlay("bytes", {place: nbytes for place, nbytes in values.items() if nbytes})


def make_overlay(name: str, content: Any, graphs: Sequence[GraphView]) -> Overlay:
    """The overlay `name`, one of `OVERLAYS`, from parsed JSON in one of the forms above. Raises `InvalidArgument` for
    another form, and where nothing of it is about a node of `graphs`."""
    if name not in OVERLAYS:
        raise InvalidArgument(f"there is no overlay {name!r}; the overlays are {', '.join(OVERLAYS)}")
    try:
        told = list(_told(content))
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise InvalidArgument(
            f"these are no numbers for the overlay {name!r}: {error!r:.200}; give what `delegraph profile --json`"
            ' or `delegraph quantize --json` prints, or {"blocks.0.conv": 0.2}'
        ) from error
    index = _Index(graphs)
    values: dict[tuple[str, str], float] = {}
    summed = OVERLAYS[name].summed
    for key, value in told:
        places = index.places(key)
        for place in places:
            known = values.get(place, 0.0)
            values[place] = known + value / len(places) if summed else max(known, value)
    if not values:
        keys = ", ".join(repr(key) for key, _ in told[:3])
        raise InvalidArgument(
            f"the overlay {name!r} has numbers for {keys or 'nothing'}, and the program has no such node, module or"
            " line; `delegraph inspect m.pte --nodes` lists what it has"
        )
    return Overlay(name, values)


# ---- the forms -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Step:
    """A step as events of a trace name it: a whole delegate has no `debug_id`."""

    instruction: int
    delegate: int | None
    debug_id: int | str | None


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of the model's code: blocks that are alike have their lines in common, so the operator counts, too."""

    line: str
    operator: str


@dataclass(frozen=True, slots=True)
class _Handle:
    """A debug handle: a fused node has several."""

    method: str
    handle: int


_Key: TypeAlias = "str | _Step | _Call | _Handle"


def _told(content: Any) -> Iterator[tuple[_Key, float]]:
    """Keys, and the number of each."""
    for field, read in _FORMS.items():
        if isinstance(content.get(field), list | dict):
            yield from read(content[field])
            return
    for key, value in content.items():
        if isinstance(value, dict):  # node data of several graphs
            yield from ((f"{key}:{node}", number) for node, number in _results(value["results"]))
        else:
            yield str(key), _number(value)


def _times(rows: Any) -> Iterator[tuple[_Key, float]]:
    for row in rows:
        if row["instruction"] is not None:
            yield _Step(row["instruction"], row["delegate"], row["debug_id"]), _number(row["p50"])


def _quantized(methods: Any) -> Iterator[tuple[_Key, float]]:
    """The noise of each layer as a share of its result: 10^(-dB / 20), by its SQNR."""
    for method in methods.values():
        for layer in method["layers"]:
            if layer["module"] and layer["sqnr"] is not None:
                yield layer["module"], 10 ** (-_number(layer["sqnr"]) / 20)


def _faults(faults: Any) -> Iterator[tuple[_Key, float]]:
    """The calls of the smallest part that is wrong: 1 for each."""
    for fault in faults:
        for call in fault["calls"]:
            yield _Call(call["location"], call["operator"]), 1.0


def _results(results: Any) -> Iterator[tuple[_Key, float]]:
    for key, result in results.items():
        yield key, _number(result["value"])


def _gaps(layers: Any) -> Iterator[tuple[_Key, float]]:
    """How far each layer is from torch; one that is NaN is as far off as the largest value."""
    for layer in layers:
        yield _Handle(layer["method"], layer["handle"]), 1.0 if layer["error"] is None else _number(layer["error"])


_FORMS: Final[Mapping[str, Callable[[Any], Iterator[tuple[_Key, float]]]]] = {
    "profile": lambda profile: _times(profile["nodes"]),
    "nodes": _times,
    "layers": _gaps,
    "methods": _quantized,
    "faults": _faults,
    "results": _results,
}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"expected a number, not {value!r:.40}")
    return float(value)


# ---- what a key is about ---------------------------------------------------------------------------


class _Index:
    """Finds the nodes that a key is about: by id, else by module, else by line."""

    def __init__(self, graphs: Sequence[GraphView]) -> None:
        self.rows = {(graph.method, node.id): node.row for graph in graphs for node in graph.nodes}
        self.by_key: dict[_Key, list[tuple[str, str]]] = {}
        for rank in (self._ids, self._modules, self._lines):
            for key, places in self._grouped(graphs, rank).items():
                self.by_key.setdefault(key, places)

    def places(self, key: _Key) -> list[tuple[str, str]]:
        """By method and id. A file's path may be longer than the one that the program has, which names no folder of
        the machine."""
        if isinstance(key, _Call):
            of_line = self.places(key.line)
            same = [place for place in of_line if (row := self.rows[place]) and key.operator in row.origin.operators]
            return same or of_line
        if key in self.by_key or isinstance(key, _Step | _Handle):
            return self.by_key.get(key, [])
        folders = key.partition(", in ")[0].replace("\\", "/").split("/")
        shorter = ("/".join(folders[start:]) for start in range(len(folders)))
        return next((self.by_key[path] for path in shorter if path in self.by_key), [])

    @staticmethod
    def _grouped(
        graphs: Sequence[GraphView], keys_of: Callable[[str, ViewNode], Iterable[_Key]]
    ) -> dict[_Key, list[tuple[str, str]]]:
        grouped: dict[_Key, list[tuple[str, str]]] = {}
        for graph in graphs:
            for node in graph.nodes:
                for key in dict.fromkeys(keys_of(graph.method, node)):
                    grouped.setdefault(key, []).append((graph.method, node.id))
        return grouped

    @staticmethod
    def _ids(method: str, node: ViewNode) -> Iterator[_Key]:
        yield from (node.id, f"{method}:{node.id}")
        if node.row is not None:
            yield _Step(node.row.instruction, node.row.delegate, node.row.debug_id)
            yield _Step(node.row.instruction, node.row.delegate, None)
            yield from (_Handle(method, handle) for handle in node.row.handles)

    @staticmethod
    def _modules(_method: str, node: ViewNode) -> Iterator[_Key]:
        modules = (node.module, *(node.row.origin.modules if node.row else ()))  # a fused one has several
        yield from filter(None, modules)

    @staticmethod
    def _lines(_method: str, node: ViewNode) -> Iterator[_Key]:
        for line in node.lines:
            yield from (line, line.partition(",")[0])
