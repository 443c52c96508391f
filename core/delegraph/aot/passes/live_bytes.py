"""Graph -> how many bytes are alive at each of its nodes, and whether more would be if results shared memory.

Bytes are counted node by node; views and in-place updates count as the memory that they show. The memory of bodies of
control flow is left out: this guides passes that trade a copy for a longer life, and planning counts by instructions.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.fx import GraphModule, Node

from delegraph.aot.graph.memory_use import MemoryUse, memory_use
from delegraph.aot.graph.signature import live_nodes
from delegraph.aot.graph.tensor_spec import Bounds
from delegraph.aot.passes.reinplacing import updated_value

__all__ = ["LiveBytes", "Unit"]


@dataclass(slots=True, eq=False)
class Unit:
    """The memory of a tensor and of all that shows it, alive from node `first` to node `last`. The tensor is result
    `position` of `origin`; `is_kept`: some value in it is a result of the graph."""

    origin: Node
    position: int
    nbytes: int
    first: int
    last: int
    is_kept: bool = False
    joined: Unit | None = None
    """Whose memory it has become."""


class LiveBytes:
    """The units of one graph. `planned` are the placeholders that have planned memory, `always` those among them that
    keep it, `roots` the values that the graph returns."""

    def __init__(
        self,
        module: GraphModule,
        bounds: Bounds,
        roots: Sequence[object],
        planned: Collection[Node] = (),
        always: Collection[Node] = (),
    ) -> None:
        live = live_nodes(module.graph, roots)
        self.order = [node for node in module.graph.nodes if node in live or node in planned]
        self.position = {node: i for i, node in enumerate(self.order, 1)}
        self._bounds = bounds
        self._of: dict[Node, Unit] = {}
        self._results: dict[tuple[Node, int], Unit] = {}
        end = len(self.order) + 1
        for node in self.order:
            self._read(node)
            if node.op == "call_function" or node in planned:
                self._make(node, 0 if node in planned else self.position[node])
        for root in roots:
            if (unit := self.of(root)) is not None:
                unit.last, unit.is_kept = end, True
        for node in always:
            if (unit := self.of(node)) is not None:
                unit.last = end
        self._alive = np.zeros(end + 1, np.int64)
        for unit in self.units():
            self._alive[unit.first : unit.last + 1] += unit.nbytes
        self.peak = int(self._alive.max())
        """The most bytes that are alive at one node."""

    def units(self) -> list[Unit]:
        """All units, those that were joined to others too."""
        return list(dict.fromkeys([*self._of.values(), *self._results.values()]))

    def of(self, node: object) -> Unit | None:
        """The unit that a node's tensor lies in; None for a value that is not a single planned tensor."""
        return _home(self._of.get(node)) if isinstance(node, Node) else None

    def results(self, node: Node) -> list[Unit | None]:
        """The units of a call's results, in order."""
        value = node.meta.get("val")
        if isinstance(value, (tuple, list)):
            return [_home(self._results.get((node, i))) for i in range(len(value))]
        return [self.of(node)]

    def join(self, whole: Unit, others: Sequence[Unit]) -> bool:
        """Let `others` lie in the memory of `whole`, unless more bytes were alive at the peak then."""
        units = (whole, *others)
        first, last = min(unit.first for unit in units), max(unit.last for unit in units)
        before = self._alive[first : last + 1]  # a view: only this stretch changes, which is short in most graphs
        alive = before + whole.nbytes
        for unit in units:
            alive[unit.first - first : unit.last + 1 - first] -= unit.nbytes
        if alive.max() > self.peak:
            return False
        was_highest = before.max() == self.peak  # else the peak lies elsewhere, and stays
        before[:] = alive
        if was_highest and alive.max() < self.peak:
            self.peak = int(self._alive.max())
        whole.first, whole.last = first, last
        whole.is_kept = any(unit.is_kept for unit in units)
        for unit in others:
            unit.joined = whole
        return True

    def _read(self, node: Node) -> None:
        for source in node.all_input_nodes if node.op == "call_function" else ():
            if (unit := self.of(source)) is not None:
                unit.last = self.position[node]

    def _make(self, node: Node, first: int) -> None:
        value, use = node.meta.get("val"), memory_use(node)
        if use in (MemoryUse.VIEW, MemoryUse.RESIZED_VIEW):
            self._show(node, node.args[0])
        elif use is MemoryUse.IN_PLACE:
            self._show(node, updated_value(node))
        elif node.target is operator.getitem:
            unit = self._results.get((node.args[0], node.args[1]))  # type: ignore[arg-type]
            if unit is not None:
                self._of[node] = unit
        elif isinstance(value, torch.Tensor):
            self._of[node] = Unit(node, 0, self._nbytes(value, node), first, max(first, self.position[node]))
        elif isinstance(value, (tuple, list)):
            for i, result in enumerate(value):
                if isinstance(result, torch.Tensor):
                    self._results[node, i] = Unit(node, i, self._nbytes(result, node), first, first)

    def _show(self, node: Node, source: object) -> None:
        if (unit := self.of(source)) is not None:
            self._of[node] = unit

    def _nbytes(self, value: torch.Tensor, node: Node) -> int:
        return self._bounds.spec(value, node).nbytes


def _home(unit: Unit | None) -> Unit | None:
    while unit is not None and unit.joined is not None:
        unit = unit.joined
    return unit
