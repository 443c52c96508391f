"""A node on int8, int16 or uint8 -> the same node on int32, for converters that compute with nothing narrower.

x int8 ── Cast int32 ──┐
                       Add ── Cast int8 ── result, wrapped as torch wraps it
y int8 ── Cast int32 ──┘
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from delegraph_cpu.aot.dtypes import NARROW
from delegraph_cpu.aot.graph_builder import Converted, GraphBuilder

__all__ = ["convert_widened"]


def convert_widened(
    g: GraphBuilder, node: Node, convert: Callable[[GraphBuilder, Node], Converted]
) -> ir.Value | list[ir.Value | None]:
    """What `convert` makes of `node`, its narrow operands widened and its narrow results cast back."""
    graph = Graph()
    arguments = {operand: _widened(g, graph, operand) for operand in node.all_input_nodes}
    twin = graph.node_copy(node, arguments.__getitem__)
    twin.meta = {**node.meta, "val": pytree.tree_map_only(torch.Tensor, _as_int32, node.meta["val"])}
    result = convert(g, twin)
    wanted = node.meta["val"]
    if isinstance(result, ir.Value):
        return _narrowed(g, result, wanted)
    return [None if one is None else _narrowed(g, one, want) for one, want in zip(result, wanted, strict=True)]


def _widened(g: GraphBuilder, graph: Graph, operand: Node) -> Node:
    """A node of `graph` that stands for `operand`."""
    twin = graph.placeholder(operand.name)
    twin.meta, value = dict(operand.meta), operand.meta["val"]
    g.values[twin] = g.values[operand]
    if isinstance(value, torch.Tensor) and value.dtype in NARROW:
        twin.meta["val"] = _as_int32(value)
        g.values[twin] = g.record(g.cast(g.value(operand), torch.int32), value.shape)
    return twin


def _as_int32(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.int32) if value.dtype in NARROW else value


def _narrowed(g: GraphBuilder, value: ir.Value, wanted: Any) -> ir.Value:
    return g.cast(value, wanted.dtype) if wanted.dtype in NARROW else value
