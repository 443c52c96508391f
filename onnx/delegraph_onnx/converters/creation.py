"""Tensors made from nothing, and casts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph.aot import exir_ops
from delegraph.aot.authoring import named_arguments, operator_name
from delegraph_onnx.converters.table import aten, convert_with
from delegraph_onnx.dtypes import ALL, HALVES, NUMBERS, NUMBERS_OR_BOOL
from delegraph_onnx.graph_builder import GraphBuilder, Scalar
from delegraph_onnx.node_facts import CASTS, are_known, dtype_of, outer_dtype_of, same_sizes, shape_of

_EMPTIES = [exir_ops.edge.dim_order_ops._empty_dim_order.default]

# ---- filled -------------------------------------------------------------------------------------------------------


@convert_with("full zeros ones new_full new_zeros new_ones", dtypes=ALL)
@convert_with(
    [*map(aten, ["empty.memory_format", "empty_strided", "empty_permuted", "new_empty"]), *_EMPTIES], dtypes=ALL
)
def filled(g: GraphBuilder, node: Node, *args: Any) -> ir.Value:
    """Elements that torch leaves undefined are zero here."""
    size, *rest = args[1:] if isinstance(args[0], Node) and isinstance(args[1], Sequence) else args
    value = g.operand(_number(node, *rest), outer_dtype_of(node))
    return g.op("Expand", value, g.sizes(size)) if size else value


@convert_with("full_like zeros_like ones_like", dtypes=ALL)
def filled_like(g: GraphBuilder, node: Node, self: Node, *rest: Any) -> ir.Value:
    shape, value = shape_of(node), g.operand(_number(node, *rest), outer_dtype_of(node))
    if not shape:
        return value
    return g.op("Expand", value, g.ints(shape) if are_known(*shape) else g.op("Shape", g.value(self)))  # type: ignore[arg-type]


def _number(node: Node, *told: Any) -> Node | Scalar:
    """The number that fills a tensor: `full` and its like have it as their next argument."""
    name = operator_name(node)
    return told[0] if "full" in name else int("ones" in name)


@convert_with("copy", dtypes=ALL)
def copy(g: GraphBuilder, node: Node, self: Node, src: Node, *_: object) -> ir.Value:
    """`src`, in the dtype and shape of `self`."""
    value = g.tensor(src, dtype_of(node))
    if same_sizes(shape_of(src), shape_of(self)):
        return value
    return g.op("Expand", value, g.op("Shape", g.value(self)))


@convert_with("fill.Scalar fill.Tensor", dtypes=NUMBERS_OR_BOOL)
def fill(g: GraphBuilder, node: Node, self: Node, value: Node | Scalar) -> ir.Value:
    return g.op("Expand", g.operand(value, outer_dtype_of(node)), g.op("Shape", g.value(self)))


@convert_with("scalar_tensor", dtypes=ALL)
def scalar_tensor(g: GraphBuilder, node: Node, s: Node | Scalar, *_: object) -> ir.Value:
    return g.operand(s, outer_dtype_of(node))


# ---- ranges -------------------------------------------------------------------------------------------------------


@convert_with("arange arange.start arange.start_step", dtypes=NUMBERS)
def arange(g: GraphBuilder, node: Node, *_: object) -> ir.Value:
    dtype, told = dtype_of(node), {"start": 0, "step": 1} | named_arguments(node)
    bounds = [told[name] for name in ("start", "end", "step")]
    if all(isinstance(bound, int | float) for bound in bounds):
        return g.constant(torch.arange(*bounds, dtype=dtype).numpy())
    return g.op("Range", *(g.tensor(bound, dtype) for bound in bounds))


# ---- casts --------------------------------------------------------------------------------------------------------


@convert_with(CASTS, dtypes=ALL)
def cast(g: GraphBuilder, node: Node, self: Node, *_: object) -> ir.Value:
    result = g.tensor(self, dtype_of(node))
    return g.cast(g.cast(result, outer_dtype_of(node)), dtype_of(node)) if _rounds(node, self) else result


def _rounds(node: Node, self: Node) -> bool:
    """Whether `node` casts to a half only for the rounding: its result is widened again at once."""
    if outer_dtype_of(node) not in HALVES or outer_dtype_of(self) in HALVES:
        return False
    return any(user.target in CASTS and outer_dtype_of(user) not in HALVES for user in node.users)
