"""A node whose results have no elements -> constants of their shapes: nothing is computed, whatever the operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.dtypes import COMPLEX, computed_in
from delegraph_onnx.graph_builder import Converted, GraphBuilder
from delegraph_onnx.node_facts import are_known, common_sizes

__all__ = ["gives_nothing", "is_empty", "nothing", "unless_nothing"]


def gives_nothing(node: Node) -> bool:
    """Whether all results of `node` are known to have no elements."""
    results = _results(node)
    if not results or not all(isinstance(result, torch.Tensor) and is_empty(result) for result in results):
        return False
    return _has_sizes_of(node, results)


def is_empty(tensor: torch.Tensor) -> bool:
    return any(isinstance(size, int) and size == 0 for size in tensor.shape)


def _results(node: Node) -> Sequence[torch.Tensor]:
    results = node.meta.get("val")
    return results if isinstance(results, tuple | list) else [results]  # type: ignore[list-item]


def _has_sizes_of(node: Node, results: Sequence[torch.Tensor]) -> bool:
    """Whether each dynamic size of `results` is one of an operand."""
    return all(isinstance(size, int) or _origin(node, size) for result in results for size in result.shape)


def _origin(node: Node, size: torch.SymInt) -> tuple[Node, int] | None:
    """An operand with a dim of that dynamic size, and which dim it is."""
    for operand in node.all_input_nodes:
        for dim, operand_size in enumerate(getattr(operand.meta.get("val"), "shape", ())):
            if str(operand_size) == str(size):
                return operand, dim
    return None


def nothing(g: GraphBuilder, node: Node) -> Converted:
    """The results of a node whose results have no elements."""
    results = node.meta["val"]
    if isinstance(results, torch.Tensor):
        return _empty(g, node, results)
    return [_empty(g, node, result) for result in results]


def _empty(g: GraphBuilder, node: Node, result: torch.Tensor) -> ir.Value:
    dtype, pair = computed_in(result.dtype), [2] if result.dtype in COMPLEX else []
    if are_known(*result.shape):
        return g.filled(0, [*result.shape, *pair], dtype)
    sizes = [*_sizes(g, node, result.shape)]
    return g.op("Expand", g.tensor(0, dtype), g.sizes([*sizes, *pair]))


def _sizes(g: GraphBuilder, node: Node, sizes: Sequence[int | torch.SymInt]) -> Iterator[int | ir.Value]:
    """Known sizes as they are, dynamic ones read from an operand at run time."""
    for size in sizes:
        origin = size if isinstance(size, int) else _origin(node, size)
        if origin is not None:
            yield origin if isinstance(origin, int) else g.size(g.value(origin[0]), origin[1])


def unless_nothing(g: GraphBuilder, node: Node, convert: Callable[[], Converted]) -> Converted:
    """The results of `convert`, for an operator that onnxruntime does not run without elements:

        x ── Attention        ──>        x ── If there are elements ──(then)── Attention
                                                                     └─(else)── Expand

    The If is left out where each run has elements, or the delegate does not run without any.
    """
    results = _results(node)
    sizes = [size for size in common_sizes(result.shape for result in results) if g.may_run_with_none(size)]
    if not sizes or not _has_sizes_of(node, results):
        return convert()
    some = g.op("ReduceMin", g.sizes([*_sizes(g, node, sizes)]), keepdims=0)
    values: list[ir.Value | None] = []

    def computed() -> list[ir.Value]:
        value = convert()
        values.extend([value] if isinstance(value, ir.Value) else value)
        return [value for value in values if value is not None]

    def empty() -> list[ir.Value]:
        return [_empty(g, node, result) for result, value in zip(results, values, strict=True) if value is not None]

    chosen = g.choose(g.cast(some, torch.bool), computed, empty)
    if isinstance(node.meta["val"], torch.Tensor):
        return chosen[0]
    remaining = iter(chosen)
    return [None if value is None else next(remaining) for value in values]
