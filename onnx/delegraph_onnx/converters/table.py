"""The table that the family modules fill: operator -> its converter to ONNX, and the conditions for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

import torch
from torch.fx import Node

from delegraph.aot.authoring import (
    Check,
    Converter,
    ConverterTable,
    body_of,
    operator_name,
    schema_arguments,
    tensors_of,
    used_results,
)
from delegraph_onnx.converters.empty_results import gives_nothing, is_empty, nothing, unless_nothing
from delegraph_onnx.converters.widening import convert_widened
from delegraph_onnx.dtypes import COMPLEX, FLOATS, HALVES, NARROW, ONNX_TYPES
from delegraph_onnx.graph_builder import Converted, GraphBuilder
from delegraph_onnx.node_facts import are_known, aten, rank_of
from delegraph_onnx.target import Target

__all__ = [
    "TABLE",
    "Check",
    "Convert",
    "OnnxConverter",
    "TargetTable",
    "aten",
    "convert_named",
    "convert_with",
    "has_dims",
    "name_of",
    "only_first_result_used",
    "schema_arguments",
    "tensors_of",
    "unless",
    "used_results",
]

Convert: TypeAlias = Callable[..., Converted]
"""`(builder, node, *schema arguments)` -> the node's value(s). Arguments stand as in the node, defaults filled in."""

_F = TypeVar("_F", bound=Convert)


@dataclass(frozen=True, slots=True)
class OnnxConverter(Converter):
    """The converter of one operator to ONNX, and its conditions.

    `dtypes` are admitted for every tensor of the node, halves with float32 and narrow integers with int32. A node whose
    results have no elements is always taken; if only some operands have none, the operator must say `takes_empty`. An
    operator that `needs_elements` is skipped in a run in which it has none. Of several `results` only the first has an
    equivalent, which `convert` returns.
    """

    dtypes: frozenset[torch.dtype] = FLOATS
    takes_empty: bool = False
    needs_elements: bool = False
    results: int = 1

    def support(self, node: Node, backend: str) -> str | None:
        """None if `node` can be converted, otherwise the reason."""
        if gives_nothing(node):
            return _check_dtypes(node, frozenset(ONNX_TYPES) | COMPLEX.keys())
        reason = _check_dtypes(node, self.dtypes) or _check_sizes(node, self.takes_empty)
        reason = reason or (only_first_result_used(node) if self.results > 1 else None)
        return reason if reason or self.check is None else self.check(node, *schema_arguments(node))

    def __call__(self, converter: GraphBuilder, node: Node) -> Converted:
        """Add `node` to the graph; it must be supported."""
        if gives_nothing(node):
            return nothing(converter, node)
        if self.needs_elements:
            return unless_nothing(converter, node, lambda: self._converted(converter, node))
        if any(tensor.dtype in NARROW - self.dtypes for tensor in tensors_of(node)):
            return convert_widened(converter, node, self._converted)
        return self._converted(converter, node)

    def _converted(self, builder: GraphBuilder, node: Node) -> Converted:
        converted: Converted = self.convert(builder, node, *schema_arguments(node))
        return converted if self.results == 1 else [converted, *[None] * (self.results - 1)]  # type: ignore[list-item]


class OnnxTable(ConverterTable):
    """Filled by the family modules. Where an operator has rows of several kinds, the node's tensors decide."""

    def __init__(self) -> None:
        super().__init__("ONNX")
        self.of_complex = ConverterTable("ONNX")
        """Rows of operators on complex tensors."""

    def row(self, node: Node) -> Converter | None:
        """The row for `node`, if there is one."""
        if any(tensor.dtype in COMPLEX for tensor in tensors_of(node)):
            return self.of_complex.row(node)
        return super().row(node)


TABLE: Final = OnnxTable()
"""Import it from `delegraph_onnx.converters`, which imports all that fills it."""


class TargetTable(OnnxTable):
    """The rows of `TABLE` that a target admits, for its partitioner and its converter."""

    def __init__(self, target: Target) -> None:
        vars(self).update(vars(TABLE))  # the same rows
        self.backend, self.target = target.name, target

    def support(self, node: Node) -> str | None:
        """None if `node`, and all calls in its bodies, can be converted for the target; otherwise the reason."""
        return super().support(node) or self._support_bodies(node) or _declined(self.target, node)

    def _support_bodies(self, node: Node) -> str | None:
        for reference in node.all_input_nodes:
            for inner in body_of(reference).nodes if reference.op == "get_attr" else ():
                reason = self.support(inner) if inner.op == "call_function" else None
                if reason is not None:
                    return f"{inner.name} in {reference.target} would be left: {reason}"
        return None


def _declined(target: Target, node: Node) -> str | None:
    for tensor in tensors_of(node):
        if tensor.dtype not in target.dtypes:
            return f"dtype {tensor.dtype} is not supported by this backend"
        if not target.dynamic and not are_known(*tensor.shape):
            return "a size is known in the run alone"
    return target.declines(node)


def convert_with(
    operators: str | Iterable[Callable[..., Any]],
    *,
    dtypes: frozenset[torch.dtype] = FLOATS,
    check: Check | None = None,
    keep: bool = False,
    takes_empty: bool = False,
    needs_elements: bool = False,
    results: int = 1,
) -> Callable[[_F], _F]:
    """Put the decorated function into the table for `operators`: names of aten overloads, or the callables.

    `keep` asks edge lowering not to decompose them.
    """

    def register(function: _F) -> _F:
        targets = [aten(name) for name in operators.split()] if isinstance(operators, str) else operators
        row = OnnxConverter(function, dtypes, check, takes_empty, needs_elements, results)
        for target in targets:
            TABLE.add(target, row, keep_whole=keep)
        return function

    return register


def convert_named(
    *names: str, dtypes: frozenset[torch.dtype] = FLOATS, check: Check | None = None
) -> Callable[[_F], _F]:
    """As `convert_with`, for operators by their names: they may be those of a library that is not loaded."""

    def register(function: _F) -> _F:
        for name in names:
            TABLE.add(name, OnnxConverter(function, dtypes, check))
        return function

    return register


def unless(holds: Callable[..., bool], reason: str) -> Check:
    """A check that declines the node with `reason` unless `holds(node, *schema arguments)`."""
    return lambda *arguments: None if holds(*arguments) else reason


def name_of(node: Node) -> str:
    """The operator's name, without namespace and overload."""
    return operator_name(node).partition("::")[2].partition(".")[0]


def only_first_result_used(node: Node) -> str | None:
    """For operators whose further results have no ONNX equivalent."""
    further = [index for index in used_results(node) if index > 0]
    return f"its results {further} are used" if further else None


def has_dims(node: Node, self: Node, *_: object) -> str | None:
    """For operators along a dim: torch also accepts a dim for a tensor without dims."""
    return None if rank_of(self) else "a tensor without dims"


def _check_dtypes(node: Node, dtypes: frozenset[torch.dtype]) -> str | None:
    for tensor in tensors_of(node):
        wider = torch.int32 if tensor.dtype in NARROW else torch.float32 if tensor.dtype in HALVES else tensor.dtype
        if not {wider, tensor.dtype} & dtypes:
            known = tensor.dtype in ONNX_TYPES or tensor.dtype in COMPLEX
            return f"dtype {tensor.dtype} is not supported {'by this operator' if known else 'by this backend'}"
    return None


def _check_sizes(node: Node, takes_empty: bool) -> str | None:
    """A result with elements comes from operands with elements, unless the operator joins its operands."""
    operands = (operand.meta.get("val") for operand in node.all_input_nodes)
    empty = any(isinstance(operand, torch.Tensor) and is_empty(operand) for operand in operands)
    return "a tensor is empty" if empty and not takes_empty else None
