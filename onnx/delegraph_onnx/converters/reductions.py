"""Reductions, scans, sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph.aot.authoring import named_arguments, reduced_dims
from delegraph_onnx.converters.not_a_number import extreme, first_in_order, position
from delegraph_onnx.converters.table import convert_with, has_dims, name_of
from delegraph_onnx.dtypes import INDICES, INT64_MAX, NUMBERS, NUMBERS_OR_BOOL, REALS
from delegraph_onnx.graph_builder import GraphBuilder, Scalar, Size
from delegraph_onnx.node_facts import dtype_of, rank_of, shape_of


def _reduce(g: GraphBuilder, op_type: str, value: ir.Value, axes: Sequence[int], keepdim: bool) -> ir.Value:
    return g.op(op_type, value, g.ints(axes), keepdims=int(keepdim)) if axes else value


# ---- sums, products, means ----------------------------------------------------------------------------------------


@convert_with("sum sum.dim_IntList prod prod.dim_int", dtypes=NUMBERS_OR_BOOL)
def reduction(g: GraphBuilder, node: Node, self: Node, *_: object) -> ir.Value:
    op_type = "ReduceSum" if name_of(node) == "sum" else "ReduceProd"
    dtype, (axes, keepdim) = dtype_of(node), _reduced(node, self)
    if dtype == torch.bool and axes:
        truth = g.cast(g.tensor(self, torch.bool), torch.int64)
        return g.cast(_reduce(g, op_type, truth, axes, keepdim), torch.bool)
    value = g.tensor(self, dtype)
    if dtype in INDICES and dtype_of(self) != torch.bool:
        return reduce_integers(g, op_type, value, dtype, shape_of(self), axes, keepdim)
    return _reduce(g, op_type, value, axes, keepdim)


def _reduced(node: Node, self: Node) -> tuple[tuple[int, ...], bool]:
    """The reduced dims, and whether they are kept: by default all, and not."""
    told = named_arguments(node)
    return reduced_dims(rank_of(self), told.get("dim")), told.get("keepdim", False)


def reduce_integers(
    g: GraphBuilder,
    op_type: str,
    value: ir.Value,
    dtype: torch.dtype,
    shape: Sequence[int | torch.SymInt],
    axes: Sequence[int],
    keepdim: bool,
) -> ir.Value:
    """ReduceSum or ReduceProd of integers of `shape`, exact, and wrapped as torch wraps them.

    onnxruntime's own operators compute in double. A sum is the last of the running sums, which is as fast.
    """
    neutral = g.tensor(0 if op_type == "ReduceSum" else 1, dtype)
    for axis in axes:
        size = shape[axis]
        if _may_be_none(g, size):
            value = with_one_more(g, value, axis, len(shape), neutral)
        if op_type == "ReduceSum":
            sums = g.op("CumSum", value, g.constant(np.array(axis)))
            value = g.op("Slice", sums, g.ints([-1]), g.ints([INT64_MAX]), g.ints([axis]))
        else:
            value = _product(g, value, axis, len(shape), size, neutral)
    return value if keepdim or not axes else g.op("Squeeze", value, g.ints(axes))


def _product(
    g: GraphBuilder, value: ir.Value, axis: int, rank: int, size: int | torch.SymInt, neutral: ir.Value
) -> ir.Value:
    """Each second element times the one behind it, or 1 where there is none, until one is left: of `size`, or one more
    where that may be 0."""
    most = size if isinstance(size, int) else min(g.bounds(size)[1], _MOST)
    for _ in range(int(most).bit_length()):
        more = with_one_more(g, value, axis, rank, neutral)
        # [a b c d] and [b c d 1], every second element: [a c] * [b d]
        first, second = (
            g.op("Slice", of, g.ints([start]), g.ints([INT64_MAX]), g.ints([axis]), g.ints([2]))
            for start, of in enumerate((value, more))
        )
        value = g.op("Mul", first, second)
    return value


_MOST: Final = 2**40
"""More elements than a dim without a bound can have."""


def with_one_more(g: GraphBuilder, value: ir.Value, axis: int, rank: int, element: ir.Value) -> ir.Value:
    """`value` with `element` behind the last one along `axis`. The Pad names no axes: onnxruntime overlooks them where
    it moves a Transpose past it."""
    return g.op("Pad", value, g.ints([*[0] * rank, *(int(dim == axis) for dim in range(rank))]), element)


def _may_be_none(g: GraphBuilder, size: int | torch.SymInt) -> bool:
    return not size if isinstance(size, int) else g.may_run_with_none(size)


@convert_with("mean mean.dim", dtypes=REALS)
def mean(g: GraphBuilder, node: Node, self: Node, *_: object) -> ir.Value:
    """The mean over an image is a pool, which onnxruntime has for its blocked layouts too; it refuses an empty one."""
    (axes, keepdim), value = _reduced(node, self), g.tensor(self, dtype_of(node))
    if rank_of(self) == 4 and axes == (2, 3) and dtype_of(node) == torch.float32:
        pooled = g.op("GlobalAveragePool", value)
        return pooled if keepdim else g.op("Squeeze", pooled, g.ints([2, 3]))
    return _mean(g, self, value, dtype_of(node), axes, keepdim)


def _mean(
    g: GraphBuilder, self: Node, value: ir.Value, dtype: torch.dtype, axes: Sequence[int], keepdim: bool
) -> ir.Value:
    """The mean of nothing is NaN, and 0 to onnxruntime: where there may be nothing, it is times count / count."""
    mean = _reduce(g, "ReduceMean", value, axes, keepdim)
    if not any(_may_be_none(g, shape_of(self)[axis]) for axis in axes):
        return mean
    count = _count(g, value, axes, dtype)
    return g.op("Mul", mean, g.op("Div", count, count))


def _count(g: GraphBuilder, value: ir.Value, axes: Sequence[int], dtype: torch.dtype) -> ir.Value:
    """The number of elements in each element of a reduction over `axes`."""
    return g.cast(g.op("ReduceProd", g.op("Gather", g.op("Shape", value), g.ints(axes), axis=0), keepdims=0), dtype)


# ---- the largest and least, truth, norms --------------------------------------------------------------------------


@convert_with("max amax min amin", dtypes=NUMBERS)
def largest_or_least(g: GraphBuilder, node: Node, self: Node, *_: object) -> ir.Value:
    return extreme(g, _kind(node), g.value(self), dtype_of(node), *_reduced(node, self))


def _kind(node: Node) -> str:
    return "Max" if "max" in name_of(node) else "Min"


@convert_with("any any.dim any.dims all all.dim all.dims", dtypes=NUMBERS_OR_BOOL)
def any_all(g: GraphBuilder, node: Node, self: Node, dim: Any = None, keepdim: bool = False) -> ir.Value:
    """Whether one is true; not all are if one is false. Of nothing onnxruntime's largest is the least integer."""
    truth, none, is_any = g.tensor(self, torch.bool), isinstance(dim, Sequence) and not dim, name_of(node) == "any"
    axes = () if none else reduced_dims(rank_of(self), dim)  # an empty list means none here, unlike elsewhere
    if not axes:
        return truth
    deciding = truth if is_any else g.op("Not", truth)
    largest = _reduce(g, "ReduceMax", g.cast(deciding, torch.int32), axes, keepdim)
    decided = g.op("Greater", largest, g.tensor(0, torch.int32))
    return decided if is_any else g.op("Not", decided)


@convert_with("logsumexp", check=has_dims)
def logsumexp(g: GraphBuilder, node: Node, self: Node, dim: Any, keepdim: bool) -> ir.Value:
    return _reduce(g, "ReduceLogSumExp", g.value(self), reduced_dims(rank_of(self), dim), keepdim)


@convert_with("linalg_vector_norm", check=lambda node, self, ord, *_: None if ord in (1, 2) else f"norm of order {ord}")
def vector_norm(g: GraphBuilder, node: Node, self: Node, ord: Scalar, dim: Any, keepdim: bool, *_: object) -> ir.Value:
    value = g.tensor(self, dtype_of(node))
    axes = reduced_dims(rank_of(self), dim)
    return _reduce(g, f"ReduceL{int(ord)}", value, axes, keepdim) if axes else g.op("Abs", value)


# ---- variance -----------------------------------------------------------------------------------------------------


def _variance(
    g: GraphBuilder, self: Node, dim: Any, correction: Scalar | None, keepdim: bool
) -> tuple[ir.Value, ir.Value]:
    """Variance and mean."""
    dtype, axes, value = dtype_of(self), reduced_dims(rank_of(self), dim), g.value(self)
    mean = _mean(g, self, value, dtype, axes, True)
    deviation = g.op("Sub", value, mean)
    total = _reduce(g, "ReduceSum", g.op("Mul", deviation, deviation), axes, keepdim)
    less = 1 if correction is None else correction
    sizes = [size for axis in axes if isinstance(size := shape_of(self)[axis], int)]
    if len(sizes) == len(axes):
        divisor = max(0.0, math.prod(sizes) - less)
        variance = g.op("Mul", total, g.tensor(1.0 / divisor if divisor else float("inf"), dtype))
    else:
        count = g.op("Sub", _count(g, value, axes, dtype), g.tensor(less, dtype))
        divisor_now = g.op("Max", count, g.tensor(0.0, dtype))
        variance = g.op("Div", total, divisor_now)
    return variance, mean if keepdim or not axes else g.op("Squeeze", mean, g.ints(axes))


@convert_with("var.correction var.dim std.correction var_mean.correction", dtypes=REALS)
def variance(
    g: GraphBuilder, node: Node, self: Node, dim: Any, correction: Scalar | None, keepdim: bool
) -> ir.Value | Sequence[ir.Value]:
    """The correction of `var.dim` is a bool, which means 1 or 0."""
    both = _variance(g, self, dim, correction if correction is None else +correction, keepdim)
    if name_of(node) == "var_mean":
        return both
    return g.op("Sqrt", both[0]) if name_of(node) == "std" else both[0]


# ---- positions ----------------------------------------------------------------------------------------------------


@convert_with("argmax argmin", dtypes=NUMBERS, check=has_dims)
def arg(g: GraphBuilder, node: Node, self: Node, dim: int | None, keepdim: bool) -> ir.Value:
    if dim is not None:
        return position(g, _kind(node), g.value(self), dtype_of(self), dim % rank_of(self), keepdim)
    place = position(g, _kind(node), g.op("Reshape", g.value(self), g.ints([-1])), dtype_of(self), 0, keepdim=False)
    return g.reshape(place, [1] * rank_of(self)) if keepdim else place


@convert_with("max.dim min.dim", dtypes=NUMBERS, check=has_dims)
def extremum(g: GraphBuilder, node: Node, self: Node, dim: int, keepdim: bool) -> Sequence[ir.Value]:
    value, dtype, kind = g.value(self), dtype_of(self), _kind(node)
    return [
        extreme(g, kind, value, dtype, reduced_dims(rank_of(self), dim), keepdim),
        position(g, kind, value, dtype, dim % rank_of(self), keepdim),
    ]


@convert_with("topk", dtypes=NUMBERS, check=has_dims)
def topk(g: GraphBuilder, node: Node, self: Node, k: Size, dim: int, largest: bool, sorted: bool) -> Sequence[ir.Value]:
    return first_in_order(g, g.value(self), dtype_of(self), g.sizes([k]), dim % rank_of(self), largest, sorted)


@convert_with("sort sort.stable", dtypes=NUMBERS, check=has_dims)
def sort(g: GraphBuilder, node: Node, self: Node, *how: Any) -> Sequence[ir.Value]:
    """TopK keeps the order of equals."""
    dim, descending = how[-2:]
    value, axis = g.value(self), dim % rank_of(self)
    count = g.op("Shape", value, start=axis, end=axis + 1)
    return first_in_order(g, value, dtype_of(self), count, axis, descending, True)


@convert_with("cumsum", dtypes=NUMBERS_OR_BOOL, check=has_dims)
def cumsum(g: GraphBuilder, node: Node, self: Node, dim: int, *_: object) -> ir.Value:
    return g.op("CumSum", g.tensor(self, dtype_of(node)), g.constant(np.array(dim)))
