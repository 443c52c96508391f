"""Reductions, scans, sorting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_cpu.aot.converters.not_a_number import extreme, first_in_order, position
from delegraph_cpu.aot.converters.table import convert_with, has_dims
from delegraph_cpu.aot.dtypes import NUMBERS, NUMBERS_OR_BOOL, REALS
from delegraph_cpu.aot.graph_builder import GraphBuilder, Scalar, Size
from delegraph_cpu.aot.node_facts import dtype_of, rank_of, shape_of


def _axes(self: Node, dim: int | Sequence[int] | None) -> list[int]:
    """The dims reduced, not negative; none or an empty list means all."""
    rank = rank_of(self)
    dims = [dim] if isinstance(dim, int) else list(dim or range(rank))
    return [d % rank for d in dims] if rank else []


def _reduce(g: GraphBuilder, op_type: str, value: ir.Value, axes: Sequence[int], keepdim: bool) -> ir.Value:
    return g.op(op_type, value, g.ints(axes), keepdims=int(keepdim)) if axes else value


for _names, _op_type, _dtypes in (
    ("sum.dim_IntList", "ReduceSum", NUMBERS_OR_BOOL),
    ("prod.dim_int", "ReduceProd", NUMBERS_OR_BOOL),
):

    def _reduction(
        g: GraphBuilder, node: Node, self: Node, dim: Any, keepdim: bool, *_: object, op_type: str = _op_type
    ) -> ir.Value:
        axes = _axes(self, dim)
        if dtype_of(node) == torch.bool and axes:
            return g.cast(_reduce(g, op_type, g.tensor(self, torch.int64), axes, keepdim), torch.bool)
        return _reduce(g, op_type, g.tensor(self, dtype_of(node)), axes, keepdim)

    convert_with(_names, dtypes=_dtypes)(_reduction)

for _names, _op_type, _dtypes in (
    ("sum", "ReduceSum", NUMBERS_OR_BOOL),
    ("prod", "ReduceProd", NUMBERS_OR_BOOL),
    ("mean", "ReduceMean", REALS),
):

    def _full_reduction(g: GraphBuilder, node: Node, self: Node, *_: object, op_type: str = _op_type) -> ir.Value:
        return _reduce(g, op_type, g.tensor(self, dtype_of(node)), _axes(self, None), False)

    convert_with(_names, dtypes=_dtypes)(_full_reduction)


for _kind in ("Max", "Min"):

    def _extreme(
        g: GraphBuilder, node: Node, self: Node, dim: Any = None, keepdim: bool = False, *, kind: str = _kind
    ) -> ir.Value:
        return extreme(g, kind, g.value(self), dtype_of(node), _axes(self, dim), keepdim)

    convert_with(f"{_kind.lower()} a{_kind.lower()}", dtypes=NUMBERS)(_extreme)


@convert_with("mean.dim", dtypes=REALS)
def mean(g: GraphBuilder, node: Node, self: Node, dim: Any, keepdim: bool, *_: object) -> ir.Value:
    """The mean over an image is a pool, which onnxruntime has for its blocked layouts too."""
    axes, value = _axes(self, dim), g.tensor(self, dtype_of(node))
    if rank_of(self) == 4 and sorted(axes) == [2, 3] and dtype_of(node) == torch.float32:
        pooled = g.op("GlobalAveragePool", value)
        return pooled if keepdim else g.op("Squeeze", pooled, g.ints([2, 3]))
    return _reduce(g, "ReduceMean", value, axes, keepdim)


for _kind in ("any", "all"):

    def _any_all(
        g: GraphBuilder, node: Node, self: Node, dim: Any = None, keepdim: bool = False, kind: str = _kind
    ) -> ir.Value:
        """Whether one is true; not all are if one is false. Of nothing onnxruntime's largest is the least integer."""
        truth, none = g.tensor(self, torch.bool), isinstance(dim, Sequence) and not dim
        axes = [] if none else _axes(self, dim)  # an empty list means none here, unlike elsewhere
        if not axes:
            return truth
        deciding = truth if kind == "any" else g.op("Not", truth)
        largest = _reduce(g, "ReduceMax", g.cast(deciding, torch.int32), axes, keepdim)
        found = g.op("Greater", largest, g.tensor(0, torch.int32))
        return found if kind == "any" else g.op("Not", found)

    convert_with(f"{_kind} {_kind}.dim {_kind}.dims", dtypes=NUMBERS_OR_BOOL)(_any_all)


@convert_with("logsumexp", check=has_dims)
def logsumexp(g: GraphBuilder, node: Node, self: Node, dim: Any, keepdim: bool) -> ir.Value:
    return _reduce(g, "ReduceLogSumExp", g.value(self), _axes(self, dim), keepdim)


@convert_with("linalg_vector_norm", check=lambda node, self, ord, *_: None if ord in (1, 2) else f"norm of order {ord}")
def vector_norm(g: GraphBuilder, node: Node, self: Node, ord: Scalar, dim: Any, keepdim: bool, *_: object) -> ir.Value:
    value = g.tensor(self, dtype_of(node))
    axes = _axes(self, dim)
    return _reduce(g, f"ReduceL{int(ord)}", value, axes, keepdim) if axes else g.op("Abs", value)


# ---- variance -----------------------------------------------------------------------------------------------------


def _variance(
    g: GraphBuilder, self: Node, dim: Any, correction: Scalar | None, keepdim: bool
) -> tuple[ir.Value, ir.Value]:
    """Variance and mean."""
    dtype, axes, value = dtype_of(self), _axes(self, dim), g.value(self)
    mean = _reduce(g, "ReduceMean", value, axes, True)
    deviation = g.op("Sub", value, mean)
    total = _reduce(g, "ReduceSum", g.op("Mul", deviation, deviation), axes, keepdim)
    less = 1 if correction is None else correction
    sizes = [size for axis in axes if isinstance(size := shape_of(self)[axis], int)]
    if len(sizes) == len(axes):
        divisor = max(0.0, math.prod(sizes) - less)
        variance = g.op("Mul", total, g.tensor(1.0 / divisor if divisor else float("inf"), dtype))
    else:
        count = g.op("ReduceProd", g.op("Gather", g.op("Shape", value), g.ints(axes), axis=0), keepdims=0)
        divisor_now = g.op("Max", g.op("Sub", g.cast(count, dtype), g.tensor(less, dtype)), g.tensor(0.0, dtype))
        variance = g.op("Div", total, divisor_now)
    return variance, mean if keepdim or not axes else g.op("Squeeze", mean, g.ints(axes))


@convert_with("var.correction", dtypes=REALS)
def var(g: GraphBuilder, node: Node, self: Node, dim: Any, correction: Scalar | None, keepdim: bool) -> ir.Value:
    return _variance(g, self, dim, correction, keepdim)[0]


@convert_with("var.dim", dtypes=REALS)
def var_dim(g: GraphBuilder, node: Node, self: Node, dim: Any, unbiased: bool, keepdim: bool) -> ir.Value:
    return _variance(g, self, dim, int(unbiased), keepdim)[0]


@convert_with("std.correction", dtypes=REALS)
def std(g: GraphBuilder, node: Node, self: Node, dim: Any, correction: Scalar | None, keepdim: bool) -> ir.Value:
    return g.op("Sqrt", _variance(g, self, dim, correction, keepdim)[0])


@convert_with("var_mean.correction", dtypes=REALS)
def var_mean(
    g: GraphBuilder, node: Node, self: Node, dim: Any, correction: Scalar | None, keepdim: bool
) -> Sequence[ir.Value]:
    return _variance(g, self, dim, correction, keepdim)


# ---- positions ----------------------------------------------------------------------------------------------------

for _kind in ("Max", "Min"):

    def _arg(g: GraphBuilder, node: Node, self: Node, dim: int | None, keepdim: bool, kind: str = _kind) -> ir.Value:
        if dim is not None:
            return position(g, kind, g.value(self), dtype_of(self), dim, keepdim)
        found = position(g, kind, g.op("Reshape", g.value(self), g.ints([-1])), dtype_of(self), 0, keepdim=False)
        return g.reshape(found, [1] * rank_of(self)) if keepdim else found

    def _extremum(
        g: GraphBuilder, node: Node, self: Node, dim: int, keepdim: bool, kind: str = _kind
    ) -> Sequence[ir.Value]:
        value, dtype = g.value(self), dtype_of(self)
        return [
            extreme(g, kind, value, dtype, _axes(self, dim), keepdim),
            position(g, kind, value, dtype, dim, keepdim),
        ]

    convert_with(f"arg{_kind.lower()}", dtypes=NUMBERS, check=has_dims)(_arg)
    convert_with(f"{_kind.lower()}.dim", dtypes=NUMBERS, check=has_dims)(_extremum)


@convert_with("topk", dtypes=NUMBERS, check=has_dims)
def topk(g: GraphBuilder, node: Node, self: Node, k: Size, dim: int, largest: bool, sorted: bool) -> Sequence[ir.Value]:
    return first_in_order(g, g.value(self), dtype_of(self), g.sizes([k]), dim % rank_of(self), largest, sorted)


@convert_with("sort", dtypes=NUMBERS, check=has_dims)
def sort(g: GraphBuilder, node: Node, self: Node, dim: int, descending: bool) -> Sequence[ir.Value]:
    value = g.value(self)
    axis = dim % rank_of(self)
    count = g.op("Shape", value, start=axis, end=axis + 1)
    return first_in_order(g, value, dtype_of(self), count, axis, descending, True)


@convert_with("sort.stable", dtypes=NUMBERS, check=has_dims)
def stable_sort(
    g: GraphBuilder, node: Node, self: Node, stable: bool, dim: int, descending: bool
) -> Sequence[ir.Value]:
    """TopK keeps the order of equals."""
    return sort(g, node, self, dim, descending)


@convert_with("cumsum", dtypes=NUMBERS_OR_BOOL, check=has_dims)
def cumsum(g: GraphBuilder, node: Node, self: Node, dim: int, *_: object) -> ir.Value:
    return g.op("CumSum", g.tensor(self, dtype_of(node)), g.constant(np.array(dim)))
