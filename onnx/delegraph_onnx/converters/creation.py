"""Tensors made from nothing, and casts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph.aot import exir_ops
from delegraph_onnx.converters.table import aten, convert_with
from delegraph_onnx.copies import CASTS
from delegraph_onnx.dtypes import ALL, HALVES, NUMBERS, NUMBERS_OR_BOOL
from delegraph_onnx.graph_builder import GraphBuilder, Scalar, Size, TensorLike
from delegraph_onnx.node_facts import are_known, dtype_of, outer_dtype_of, same_sizes, shape_of

_EMPTIES = [exir_ops.edge.dim_order_ops._empty_dim_order.default]

# ---- filled -------------------------------------------------------------------------------------------------------


def _filled(g: GraphBuilder, node: Node, size: Sequence[Size], value: Node | Scalar) -> ir.Value:
    filled = g.operand(value, outer_dtype_of(node))
    return g.op("Expand", filled, g.sizes(size)) if size else filled


@convert_with("full", dtypes=ALL)
def full(g: GraphBuilder, node: Node, size: Sequence[Size], fill_value: Scalar, *_: object) -> ir.Value:
    return _filled(g, node, size, fill_value)


@convert_with("zeros", dtypes=ALL)
def zeros(g: GraphBuilder, node: Node, size: Sequence[Size], *_: object) -> ir.Value:
    return _filled(g, node, size, 0)


@convert_with(
    [*map(aten, ["empty.memory_format", "empty_strided", "empty_permuted", "new_empty"]), *_EMPTIES], dtypes=ALL
)
def empty(g: GraphBuilder, node: Node, *args: Any) -> ir.Value:
    """What torch leaves undefined is zero here."""
    size = args[1] if isinstance(args[0], Node) and isinstance(args[1], Sequence) else args[0]
    return _filled(g, node, size, 0)


@convert_with("copy", dtypes=ALL)
def copy(g: GraphBuilder, node: Node, self: Node, src: Node, *_: object) -> ir.Value:
    """`src`, in the dtype and shape of `self`."""
    value = g.tensor(src, dtype_of(node))
    if same_sizes(shape_of(src), shape_of(self)):
        return value
    return g.op("Expand", value, g.op("Shape", g.value(self)))


@convert_with("ones", dtypes=ALL)
def ones(g: GraphBuilder, node: Node, size: Sequence[Size], *_: object) -> ir.Value:
    return _filled(g, node, size, 1)


@convert_with("new_full", dtypes=ALL)
def new_full(g: GraphBuilder, node: Node, self: Node, size: Sequence[Size], value: Scalar, *_: object) -> ir.Value:
    return _filled(g, node, size, value)


@convert_with("new_zeros", dtypes=ALL)
def new_zeros(g: GraphBuilder, node: Node, self: Node, size: Sequence[Size], *_: object) -> ir.Value:
    return _filled(g, node, size, 0)


@convert_with("new_ones", dtypes=ALL)
def new_ones(g: GraphBuilder, node: Node, self: Node, size: Sequence[Size], *_: object) -> ir.Value:
    return _filled(g, node, size, 1)


def _filled_like(g: GraphBuilder, node: Node, self: Node, value: Scalar) -> ir.Value:
    shape = shape_of(node)
    if are_known(*shape):
        return _filled(g, node, shape, value)  # type: ignore[arg-type]
    return g.op("Expand", g.operand(value, outer_dtype_of(node)), g.op("Shape", g.value(self)))


@convert_with("full_like", dtypes=ALL)
def full_like(g: GraphBuilder, node: Node, self: Node, fill_value: Scalar, *_: object) -> ir.Value:
    return _filled_like(g, node, self, fill_value)


@convert_with("zeros_like", dtypes=ALL)
def zeros_like(g: GraphBuilder, node: Node, self: Node, *_: object) -> ir.Value:
    return _filled_like(g, node, self, 0)


@convert_with("ones_like", dtypes=ALL)
def ones_like(g: GraphBuilder, node: Node, self: Node, *_: object) -> ir.Value:
    return _filled_like(g, node, self, 1)


@convert_with("fill.Scalar fill.Tensor", dtypes=NUMBERS_OR_BOOL)
def fill(g: GraphBuilder, node: Node, self: Node, value: Node | Scalar) -> ir.Value:
    return g.op("Expand", g.operand(value, outer_dtype_of(node)), g.op("Shape", g.value(self)))


@convert_with("scalar_tensor", dtypes=ALL)
def scalar_tensor(g: GraphBuilder, node: Node, s: Node | Scalar, *_: object) -> ir.Value:
    return g.operand(s, outer_dtype_of(node))


# ---- ranges -------------------------------------------------------------------------------------------------------


@convert_with("arange", dtypes=NUMBERS)
def arange(g: GraphBuilder, node: Node, end: TensorLike, *_: object) -> ir.Value:
    return _range(g, node, 0, end, 1)


@convert_with("arange.start", dtypes=NUMBERS)
def arange_start(g: GraphBuilder, node: Node, start: TensorLike, end: TensorLike, *_: object) -> ir.Value:
    return _range(g, node, start, end, 1)


@convert_with("arange.start_step", dtypes=NUMBERS)
def arange_start_step(
    g: GraphBuilder, node: Node, start: TensorLike, end: TensorLike, step: TensorLike, *_: object
) -> ir.Value:
    return _range(g, node, start, end, step)


def _range(g: GraphBuilder, node: Node, start: TensorLike, end: TensorLike, step: TensorLike) -> ir.Value:
    dtype = dtype_of(node)
    known = [bound for bound in (start, end, step) if isinstance(bound, int | float)]
    if len(known) == 3:
        return g.constant(torch.arange(*known, dtype=dtype).numpy())
    return g.op("Range", *(g.tensor(bound, dtype) for bound in (start, end, step)))


# ---- casts --------------------------------------------------------------------------------------------------------


@convert_with(CASTS, dtypes=ALL)
def cast(g: GraphBuilder, node: Node, self: Node, *_: object) -> ir.Value:
    result = g.tensor(self, dtype_of(node))
    return g.cast(g.cast(result, outer_dtype_of(node)), dtype_of(node)) if _rounds(node, self) else result


def _rounds(node: Node, self: Node) -> bool:
    """Whether `node` casts to a half only for the rounding: what it gives is widened again at once."""
    if outer_dtype_of(node) not in HALVES or outer_dtype_of(self) in HALVES:
        return False
    return any(user.target in CASTS and outer_dtype_of(user) not in HALVES for user in node.users)
