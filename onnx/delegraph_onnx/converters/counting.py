"""Counts: histograms, places in a sorted list; and running products."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from torch.fx import Node

from delegraph_onnx.converters.not_a_number import extreme
from delegraph_onnx.converters.pointwise import compared
from delegraph_onnx.converters.table import convert_with
from delegraph_onnx.dtypes import NARROW, NUMBERS, REALS
from delegraph_onnx.graph_builder import GraphBuilder, Scalar, TensorLike
from delegraph_onnx.node_facts import dtype_of, rank_of, shape_of


@convert_with("histc", dtypes=REALS)
def histc(g: GraphBuilder, node: Node, self: Node, bins: int, low: Scalar, high: Scalar) -> ir.Value:
    """Each element is compared with all bins. Equal bounds become the elements' extremes, or 1 below and above."""
    dtype, value = dtype_of(self), g.op("Reshape", g.value(self), g.ints([-1]))
    if low == high:
        first, last = (extreme(g, kind, value, dtype, [0], keepdim=False) for kind in ("Min", "Max"))
        same, unit = g.op("Equal", first, last), g.tensor(1.0, dtype)
        first, last = (
            g.op("Where", same, g.op(away, bound, unit), bound) for away, bound in (("Sub", first), ("Add", last))
        )
    else:
        first, last = g.tensor(float(low), dtype), g.tensor(float(high), dtype)
    scaled = g.op("Mul", g.op("Sub", value, first), g.tensor(float(bins), dtype))
    number = g.op("Floor", g.op("Div", scaled, g.op("Sub", last, first)))
    number = g.op("Min", number, g.tensor(float(bins - 1), dtype))  # the upper bound is in the last bin
    inside = g.op("And", g.op("GreaterOrEqual", value, first), g.op("LessOrEqual", value, last))
    number = g.op("Where", inside, number, g.tensor(-1.0, dtype))
    every = g.cast(g.constant(np.arange(bins)[:, None]), dtype)
    return g.op("ReduceSum", g.cast(g.op("Equal", every, number), dtype), g.ints([1]), keepdims=0)


# ---- places in a sorted list: as many as there are elements before -------------------------------------------------


@convert_with("searchsorted.Tensor searchsorted.Scalar", dtypes=NUMBERS | NARROW)
def searchsorted(
    g: GraphBuilder, node: Node, sorted_sequence: Node, self: TensorLike, out_int32: bool, right: bool, *how: Any
) -> ir.Value:
    side, sorter = how
    sequence, value = compared(g, "Greater", sorted_sequence, self)
    if sorter is not None:
        sequence = g.op("GatherElements", sequence, g.value(sorter), axis=-1)
    if rank_of(sorted_sequence) > 1:
        sequence = g.op("Unsqueeze", sequence, g.ints([-2]))
    return _before(g, node, sequence, g.op("Unsqueeze", value, g.ints([-1])), right or side == "right")


@convert_with("bucketize.Tensor bucketize.Scalar", dtypes=NUMBERS | NARROW)
def bucketize(
    g: GraphBuilder, node: Node, self: TensorLike, boundaries: Node, out_int32: bool, right: bool
) -> ir.Value:
    sequence, value = compared(g, "Greater", boundaries, self)
    return _before(g, node, sequence, g.op("Unsqueeze", value, g.ints([-1])), right)


def _before(g: GraphBuilder, node: Node, sequence: ir.Value, value: ir.Value, right: bool) -> ir.Value:
    """NaN is sorted behind everything, as in torch."""
    behind = g.op("Greater" if right else "GreaterOrEqual", sequence, value)
    counts = g.cast(g.op("Not", behind), dtype_of(node))
    return g.op("ReduceSum", counts, g.ints([rank_of(node)]), keepdims=0)  # onnxruntime: no -1 for an empty tensor


# ---- running products ----------------------------------------------------------------------------------------------


@convert_with("cumprod", dtypes=NUMBERS, check=lambda node, self, dim, *_: (
    None if not rank_of(self) or isinstance(shape_of(self)[dim], int) else "the dim is dynamic"))  # fmt: skip
def cumprod(g: GraphBuilder, node: Node, self: Node, dim: int, *_: object) -> ir.Value:
    """Each step multiplies by the element twice as far before, until that is beyond the first element."""
    dtype, value = dtype_of(node), g.tensor(self, dtype_of(node))
    if not rank_of(self):
        return value
    axis, distance = dim % rank_of(self), 1
    while distance < int(shape_of(self)[axis]):
        kept = g.op("Slice", value, g.ints([0]), g.ints([-distance]), g.ints([axis]))
        before = [distance * (i == axis) for i in range(rank_of(self))]  # for all axes: see `with_one_more`
        shifted = g.op("Pad", kept, g.ints([*before, *[0] * rank_of(self)]), g.tensor(1, dtype))
        value, distance = g.op("Mul", value, shifted), 2 * distance
    return value
