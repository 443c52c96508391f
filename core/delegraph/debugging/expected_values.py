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
from delegraph.devtools.program_model.rows import Origin
from delegraph.errors import InvalidArgument
from delegraph.program.debug_data import DebugData

__all__ = ["Delegate", "ExpectedValues", "Value", "gap"]

Value: TypeAlias = "Sequence[torch.Tensor]"
"""The results of a call, in order."""


@dataclass(frozen=True, slots=True)
class Delegate:
    """A call of a delegate: its number, its backend's id, the instruction, and the handles of what is in it."""

    index: int
    backend: str
    instruction: int
    handles: frozenset[int]


@dataclass(frozen=True)
class ExpectedValues:
    """A method's functional program with torch's values, and the handles that the file has for its calls."""

    method: str
    reference: Reference
    told: DebugData
    share: float | None

    def __post_init__(self) -> None:
        if not self.calls_of:
            raise InvalidArgument(
                f"the program was not lowered from this model: none of the {len(self.told.nodes)} layers of"
                f" {self.method} is in it"
            )

    @cached_property
    def calls_of(self) -> dict[int, list[Node]]:
        """The calls by the file's handle. Handles are counted anew where lowering removed calls, so both sides are put
        beside each other by module and line."""
        own: dict[int, list[Node]] = {}
        for name in self.reference.calls:
            node = self.reference.node(name)
            if isinstance(node.meta.get(DEBUG_HANDLE), int):
                own.setdefault(node.meta[DEBUG_HANDLE], []).append(node)
        places_here = [_key(*place_of(nodes)) for nodes in own.values()]
        there = sorted(self.told.nodes)
        places_there = [_key(self.told.nodes[handle].module, self.told.nodes[handle].line) for handle in there]
        blocks = SequenceMatcher(None, places_here, places_there, autojunk=False).get_matching_blocks()
        here = [*own.values()]
        return {there[b + step]: here[a + step] for a, b, size in blocks for step in range(size)}

    def calls_in(self, handles: Collection[int]) -> list[str]:
        """The names of the calls with these handles."""
        return [node.name for handle in handles for node in self.calls_of.get(handle, ())]

    def computing(self, handles: Collection[int]) -> list[int]:
        """Those of `handles`, in order, whose calls do more than quantize or dequantize."""
        known = [handle for handle in sorted(handles) if handle in self.told.nodes]
        return [handle for handle in known if not all(map(is_rounding, self.told.nodes[handle].operators))]

    def call_of(self, name: str) -> str:
        """The call that a node is, or is an element of the results of."""
        node = self.reference.node(name)
        return node.all_input_nodes[0].name if node.target is operator.getitem else name

    def value(self, name: str) -> Value:
        """Torch's results of a call."""
        return _tensors(self.reference.value(name))

    def layer(
        self, handles: Sequence[int], actual: Value, delegate: Delegate | None, alone: str = ""
    ) -> LayerGap | None:
        """The row of what the last of `handles` gives, or of the call `alone`; None where no call gives something of
        the kind, as codes are none of real numbers."""
        nodes = self.calls_of.get(handles[-1], ())
        computing = (*self.computing(handles), handles[-1])[0]
        for node in (self.reference.node(alone),) if alone else reversed(nodes):
            expected = self.value(node.name)
            values = _with_sign(actual, expected)
            if _are_comparable(values, expected):
                modules = [place_of(self.calls_of.get(handle, ()))[0] for handle in handles]
                whole = Origin(modules=tuple(filter(None, modules))).module
                module, line = place_of(self.calls_of.get(computing, nodes))
                return gap(
                    self.method, node.name, values, expected, self.share,
                    handle=handles[-1], operator=self._operator(computing, node), line=line, module=whole or module,
                    delegate=delegate and delegate.index, backend=delegate.backend if delegate else "",
                    alone=bool(alone),
                )  # fmt: skip
        return None

    def _operator(self, handle: int, node: Node) -> str:
        """The operator of a row: where codes are compared, the one that computed them."""
        name = operator_name(node)
        calls = map(operator_name, self.calls_of.get(handle, ())) if is_rounding(name) else ()
        return next((own for own in calls if not is_rounding(own)), name)

    def reads(self, rows: Collection[str]) -> dict[str, frozenset[str]]:
        """By row, the rows that it reads; through calls that are no rows."""
        reads: dict[Node, frozenset[str]] = {}
        for node in self.reference.program.graph.nodes:
            parts = (frozenset((n.name,)) if n.name in rows else reads[n] for n in node.all_input_nodes)
            reads[node] = frozenset().union(*parts)
        return {node.name: read for node, read in reads.items()}


def place_of(nodes: Sequence[Node]) -> tuple[str, str]:
    """The module and the line of calls with one handle: of the first that has some."""
    module = next(filter(None, map(module_path, nodes)), "")
    return module, next(filter(None, map(short_location, nodes)), "")


def is_rounding(operator_name: str) -> bool:
    """Whether an operator quantizes or dequantizes."""
    return operator_name.startswith("quantized_decomposed::")


def _key(module: str, line: str) -> str:
    """The line without its file, which has another name where the model is lowered from another folder."""
    return f"{module}|{line.rpartition('/')[2]}"


def _tensors(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


# ---- comparing -----------------------------------------------------------------------------------------------------


def _are_comparable(actual: Value, expected: Value) -> bool:
    pairs = [*zip(actual, expected, strict=False)]
    return bool(pairs) and all(a.shape == e.shape and _kind(a) == _kind(e) for a, e in pairs)


def _with_sign(actual: Value, expected: Value) -> Value:
    """Codes from 0 to 255 as those from -128 to 127, if torch has these: a grid's zero point lies 128 higher, then."""
    pairs = zip(actual, expected, strict=False)
    unsigned = [a.dtype == torch.uint8 and e.dtype == torch.int8 for a, e in pairs]
    return [a.to(torch.int16) - 128 for a in actual] if any(unsigned) else actual


def _kind(tensor: torch.Tensor) -> str:
    if tensor.is_complex():
        return "complex"
    return "float" if tensor.is_floating_point() else "integer"


def gap(method: str, name: str, actual: Value, expected: Value, share: float | None, **where: Any) -> LayerGap:
    """The row of results, of which the worst counts."""
    errors, allowed, nonfinite = [0.0], [0.0], 0
    for a, e in zip(actual, expected, strict=False):
        wide_a, wide_e = a.to(_WIDEST), e.to(_WIDEST)
        both = wide_a.isfinite() & wide_e.isfinite()
        nonfinite += int((~both & (wide_a != wide_e) & ~(wide_a.isnan() & wide_e.isnan())).sum())
        apart = torch.where(both, (wide_a - wide_e).abs(), 0)
        scale = allowed_error(wide_e, 1.0) or 1.0
        errors.append(float(apart.max()) / scale if apart.numel() else 0.0)
        allowed.append(max(usual_share(a.dtype), usual_share(e.dtype)) if share is None else share)
    pairs = [*zip(expected, actual, strict=False)]
    return LayerGap(
        method=method, name=name, error=inf if nonfinite else max(errors), allowed=max(allowed),
        sqnr=sqnr(*pairs) if _kind(expected[0]) != "complex" else inf, nonfinite=nonfinite, **where,
    )  # fmt: skip


_WIDEST: Final = torch.complex128
"""Of any dtype; the absolute value of a difference is real."""
