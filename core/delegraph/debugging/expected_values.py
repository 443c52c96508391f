"""A model's functional program -> torch's value of each call, beside the handles that a `.pte` has for these calls."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from math import inf
from typing import Any, Final, TypeAlias

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from delegraph.aot.graph.debug_handles import DEBUG_HANDLE
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.graph.source_location import short_location
from delegraph.aot.module_stack import module_path
from delegraph.aot.quantize.measurement.measure import sqnr
from delegraph.debugging.layer_gaps import LayerGap
from delegraph.debugging.subgraph import Reference
from delegraph.debugging.tolerance import allowed_error, usual_share
from delegraph.errors import InvalidArgument
from delegraph.program.debug_data import DebugData

__all__ = ["ExpectedValues", "Value", "gap"]

Value: TypeAlias = "Sequence[torch.Tensor]"
"""The results of a call, in order."""


@dataclass(frozen=True)
class ExpectedValues:
    """A method's functional program with torch's values, and the handles that the file has for its calls."""

    method: str
    reference: Reference
    told: DebugData
    share: float | None

    def __post_init__(self) -> None:
        if not self.node_of:
            raise InvalidArgument(
                f"the program was not lowered from this model: none of the {len(self.told.nodes)} layers of"
                f" {self.method} is in it"
            )

    @cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self.reference.program.graph.nodes}

    @cached_property
    def node_of(self) -> dict[int, Node]:
        """By the file's handle, the last call that has it. Handles are counted anew where lowering removed calls, so
        both sides are put beside each other by module, line and result."""
        last: dict[int, Node] = {}
        for name in self.reference.calls:
            node = self._nodes[name]
            if isinstance(node.meta.get(DEBUG_HANDLE), int):
                last[node.meta[DEBUG_HANDLE]] = node
        here, there = [*last.values()], sorted(self.told.nodes)
        places_here, places_there = [_key(*_place(node)) for node in here], [*map(self._key_there, there)]
        blocks = SequenceMatcher(None, places_here, places_there, autojunk=False).get_matching_blocks()
        return {there[b + step]: here[a + step] for a, b, size in blocks for step in range(size)}

    def _key_there(self, handle: int) -> str:
        node = self.told.nodes[handle]
        return _key(node.module, node.line)

    @cached_property
    def handle_of(self) -> dict[str, int]:
        """The file's handle of each call, by the call's name."""
        own = {node.meta[DEBUG_HANDLE]: handle for handle, node in self.node_of.items()}
        handles = {name: self._nodes[name].meta.get(DEBUG_HANDLE) for name in self.reference.calls}
        return {name: own[handle] for name, handle in handles.items() if handle in own}

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self._nodes)}

    def position(self, name: str) -> int:
        """The place of a call in the program."""
        return self._positions[name]

    def call_of(self, name: str) -> str:
        """The call that a node is, or is an element of the results of."""
        node = self._nodes[name]
        return node.all_input_nodes[0].name if node.target is operator.getitem else name

    def value(self, name: str) -> Value:
        """Torch's results of a call."""
        return _tensors(self.reference.value(name))

    def layer(self, name: str, actual: Value, delegate: int | None, backend: str, alone: bool) -> LayerGap | None:
        """The row of a call; None where its results are of another kind than torch's, as codes are of a number."""
        expected, node = self.value(name), self._nodes[name]
        if not _are_comparable(actual, expected):
            return None
        module, line = _place(node)
        return gap(
            self.method, name, actual, expected, self.share,
            handle=self.handle_of.get(name, 0), operator=operator_name(node), module=module, line=line,
            delegate=delegate, backend=backend, alone=alone,
        )  # fmt: skip

    def reads(self, rows: Collection[str]) -> dict[str, frozenset[str]]:
        """By row, the rows that it reads; through calls that are no rows."""
        reads: dict[Node, frozenset[str]] = {}
        for node in self._nodes.values():
            parts = (frozenset((n.name,)) if n.name in rows else reads[n] for n in node.all_input_nodes)
            reads[node] = frozenset().union(*parts)
        return {node.name: read for node, read in reads.items()}


def _place(node: Node) -> tuple[str, str]:
    return module_path(node), short_location(node)


def _key(module: str, line: str) -> str:
    """The line without its file, which has another name where the model is lowered from another folder."""
    return f"{module}|{line.rpartition('/')[2]}"


def _tensors(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


# ---- comparing -----------------------------------------------------------------------------------------------------


def _are_comparable(actual: Value, expected: Value) -> bool:
    pairs = [*zip(actual, expected, strict=False)]
    return bool(pairs) and all(a.shape == e.shape and _kind(a) == _kind(e) for a, e in pairs)


def _kind(tensor: torch.Tensor) -> str:
    if tensor.is_complex():
        return "complex"
    return "float" if tensor.is_floating_point() else "integer"


def gap(method: str, name: str, actual: Value, expected: Value, share: float | None, **where: Any) -> LayerGap:
    """The row of results, of which the worst counts."""
    errors, allowed, nonfinite = [0.0], [0.0], 0
    for a, e in zip(actual, expected, strict=False):
        is_lost = ~a.isfinite() & e.isfinite()
        nonfinite += int(is_lost.sum())
        scale = allowed_error(e, 1.0) or 1.0
        apart = torch.where(is_lost | ~e.isfinite(), 0, (a.to(_WIDEST) - e.to(_WIDEST)).abs())
        errors.append(float(apart.max()) / scale if apart.numel() else 0.0)
        allowed.append(usual_share(e.dtype) if share is None else share)
    pairs = [*zip(expected, actual, strict=False)]
    return LayerGap(
        method=method, name=name, error=inf if nonfinite else max(errors), allowed=max(allowed),
        sqnr=sqnr(*pairs) if _kind(expected[0]) != "complex" else inf, nonfinite=nonfinite, **where,
    )  # fmt: skip


_WIDEST: Final = torch.complex128
"""Of any dtype; the absolute value of a difference is real."""
