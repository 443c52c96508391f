"""A node on int8, int16 or uint8 -> the same node on int32, for converters that compute with nothing narrower.

x int8 ── Cast int32 ──┐
                       Add ── Cast int8 ── result, wrapped as torch wraps it
y int8 ── Cast int32 ──┘

A number, or a tensor without dims, beside them wraps first: 300 is 44 in int8.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from delegraph_onnx.dtypes import INDICES, NARROW
from delegraph_onnx.graph_builder import Converted, GraphBuilder, array_of

__all__ = ["convert_widened"]


def convert_widened(
    g: GraphBuilder, node: Node, convert: Callable[[GraphBuilder, Node], Converted]
) -> ir.Value | list[ir.Value | None]:
    """The results of `convert` for `node`, its narrow operands widened and its narrow results cast back."""
    graph, expected, dtype = Graph(), node.meta["val"], _dtype_of_numbers(node)
    arguments = {operand: _widened(g, graph, operand, dtype) for operand in node.all_input_nodes}
    twin = graph.node_copy(node, arguments.__getitem__)
    if dtype is not None:
        arguments_now = (twin.args, twin.kwargs)
        twin.args, twin.kwargs = pytree.tree_map_only((int, float), lambda n: array_of(n, dtype).item(), arguments_now)
    twin.meta = {
        **node.meta,
        "val": pytree.tree_map_only(torch.Tensor, lambda t: t.to(torch.int32) if t.dtype in NARROW else t, expected),
    }
    result = convert(g, twin)
    if isinstance(result, ir.Value):
        return _narrowed(g, result, expected)
    return [None if value is None else _narrowed(g, value, like) for value, like in zip(result, expected, strict=True)]


def _dtype_of_numbers(node: Node) -> torch.dtype | None:
    """The dtype to which torch casts a number beside operands of `node`, if it is elementwise in a narrow dtype."""
    result, tags = node.meta["val"], getattr(node.target, "tags", ())
    narrow = isinstance(result, torch.Tensor) and result.dtype in NARROW
    return result.dtype if narrow and torch.Tag.pointwise in tags else None


def _widened(g: GraphBuilder, graph: Graph, operand: Node, dtype: torch.dtype | None) -> Node:
    """A node of `graph` that stands for `operand`, which is cast to `dtype` first if it has no dims."""
    twin = graph.placeholder(operand.name)
    twin.meta, value = dict(operand.meta), operand.meta["val"]
    g.values[twin] = g.values[operand]
    if not isinstance(value, torch.Tensor):
        return twin
    if dtype is not None and not value.dim() and value.dtype in INDICES | NARROW:
        narrow = g.tensor(operand, dtype)
    elif value.dtype in NARROW:
        narrow = g.value(operand)
    else:
        return twin
    twin.meta["val"] = value.to(torch.int32)
    g.values[twin] = g.record(g.cast(narrow, torch.int32), value.shape)
    return twin


def _narrowed(g: GraphBuilder, value: ir.Value, like: Any) -> ir.Value:
    return g.cast(value, like.dtype) if like.dtype in NARROW else value
