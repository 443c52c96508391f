"""Reductions, sorting and sums along a dim -> OpenVINO."""

from __future__ import annotations

from typing import Any, Final

import torch
from openvino import Output
from torch.fx import Node

from delegraph_openvino.aot.graph_builder import GraphBuilder, dtype_of, shape_of
from delegraph_openvino.aot.table import ALL, NUMBERS, converts

_WITH_BOOL: Final = NUMBERS | {torch.bool}


def _axes(x: Node, dims: Any) -> list[int]:
    rank = len(shape_of(x))
    wanted = range(rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    return sorted({dim % rank for dim in wanted}) if rank else []


def _has_dims(node: Node, x: Node, *_: Any) -> str | None:
    return None if shape_of(x) else "its operand is a scalar"


def _reduced(g: GraphBuilder, op: str, value: Output, axes: list[int], keep_dims: bool) -> Output:
    return g.op(op, value, g.vector(axes), keep_dims=keep_dims) if axes else value


def _largest_or_least(g: GraphBuilder, op: str, value: Output, axes: list[int], keep_dims: bool) -> Output:
    """In two steps, the second of which leaves all numbers as they are: OpenVINO's kernel that also rounds its result
    keeps the extremes that it has found so far as integers of 8 bits already, but sums in float."""
    if not axes:
        return value
    found = g.op(op, value, g.vector(axes), keep_dims=True)
    if not keep_dims:
        return g.op("squeeze", found, g.vector(axes))
    return g.op("reduce_sum", found, g.vector(axes), keep_dims=True)


@converts("sum.dim_IntList", dtypes=_WITH_BOOL)
def total(g: GraphBuilder, node: Node, x: Node, dims: Any, keep_dims: bool, *_: Any) -> Output:
    return _reduced(g, "reduce_sum", g.cast(x, dtype_of(node)), _axes(x, dims), keep_dims)


@converts("sum.default", "prod.default", dtypes=_WITH_BOOL)
def total_of_all(g: GraphBuilder, node: Node, x: Node, *_: Any) -> Output:
    op = "reduce_sum" if ".sum." in str(node.target) else "reduce_prod"
    return _reduced(g, op, g.cast(x, dtype_of(node)), _axes(x, None), False)


@converts("prod.dim_int", dtypes=_WITH_BOOL)
def product(g: GraphBuilder, node: Node, x: Node, dim: int, keep_dims: bool, *_: Any) -> Output:
    return _reduced(g, "reduce_prod", g.cast(x, dtype_of(node)), _axes(x, dim), keep_dims)


@converts("mean.default")
def mean_of_all(g: GraphBuilder, node: Node, x: Node, *_: Any) -> Output:
    return _reduced(g, "reduce_mean", g.cast(x, dtype_of(node)), _axes(x, None), False)


@converts("mean.dim", keep=True)
def mean(g: GraphBuilder, node: Node, x: Node, dims: Any, keep_dims: bool, *_: Any) -> Output:
    return _reduced(g, "reduce_mean", g.cast(x, dtype_of(node)), _axes(x, dims), keep_dims)


@converts("amax.default", "amin.default", dtypes=NUMBERS)
def extreme(g: GraphBuilder, node: Node, x: Node, dims: Any, keep_dims: bool) -> Output:
    op = "reduce_max" if "amax" in str(node.target) else "reduce_min"
    return _largest_or_least(g, op, g.value(x), _axes(x, dims), keep_dims)


@converts("max.default", "min.default", dtypes=NUMBERS)
def extreme_of_all(g: GraphBuilder, node: Node, x: Node) -> Output:
    op = "reduce_max" if ".max." in str(node.target) else "reduce_min"
    return _largest_or_least(g, op, g.value(x), _axes(x, None), False)


@converts("any.default", "any.dim", "any.dims", "all.default", "all.dim", "all.dims", dtypes=ALL)
def any_or_all(g: GraphBuilder, node: Node, x: Node, dims: Any = None, keep_dims: bool = False) -> Output:
    op = "reduce_logical_or" if ".any." in str(node.target) else "reduce_logical_and"
    return _reduced(g, op, g.cast(x, torch.bool), _axes(x, dims), keep_dims)


@converts("var.correction", "var.dim")
def variance(g: GraphBuilder, node: Node, x: Node, dims: Any, correction: Any = 1, keep_dims: bool = False) -> Output:
    if "var.dim" in str(node.target):
        correction = int(bool(correction))
    wide, axes = g.cast(x, torch.float32), _axes(x, dims)
    mean = g.op("reduce_mean", wide, g.vector(axes), keep_dims=True)
    squares = g.op("power", g.op("subtract", wide, mean), 2.0, dtype=torch.float32)
    result = g.op("reduce_mean", squares, g.vector(axes), keep_dims=keep_dims)
    less = 1 if correction is None else correction
    if less:
        sizes = g.op("gather", g.shape(x), g.vector(axes), g.axis(0))
        count = g.cast(g.op("reduce_prod", sizes, g.vector([0]), keep_dims=False), torch.float32)
        left = g.op("maximum", g.op("subtract", count, float(less), dtype=torch.float32), 0.0, dtype=torch.float32)
        result = g.op("multiply", result, g.op("divide", count, left))
    return g.cast(result, dtype_of(node))


@converts("cumsum.default", dtypes=_WITH_BOOL)
def cumsum(g: GraphBuilder, node: Node, x: Node, dim: int, *_: Any) -> Output:
    value = g.cast(x, dtype_of(node))
    return g.op("cumsum", value, g.axis(dim % len(shape_of(x)))) if shape_of(x) else value


# ---- places -------------------------------------------------------------------------------------------------------


def _places(g: GraphBuilder, x: Output, k: Any, axis: int, largest: bool) -> list[Output]:
    made = g.results(
        "topk", x, g.cast(k, torch.int64), axis=axis, mode="max" if largest else "min", sort="value",
        index_element_type="i64", stable=True,
    )  # fmt: skip
    return made


@converts("argmax.default", "argmin.default", dtypes=NUMBERS, check=_has_dims)
def place_of_extreme(g: GraphBuilder, node: Node, x: Node, dim: int | None, keep_dims: bool) -> Output:
    shape = shape_of(x)
    value = g.value(x) if dim is not None else g.op("reshape", x, g.vector([-1]), special_zero=False)
    axis = 0 if dim is None else dim % len(shape)
    _, places = _places(g, value, 1, axis, "argmax" in str(node.target))
    if dim is None:
        return g.op("reshape", places, g.vector([1] * len(shape) if keep_dims else []), special_zero=False)
    return places if keep_dims else g.op("squeeze", places, g.vector([axis]))


@converts("max.dim", "min.dim", dtypes=NUMBERS, check=_has_dims)
def extreme_and_place(g: GraphBuilder, node: Node, x: Node, dim: int, keep_dims: bool) -> tuple[Output, ...]:
    axis = dim % len(shape_of(x))
    found = _places(g, g.value(x), 1, axis, ".max." in str(node.target))
    return tuple(f if keep_dims else g.op("squeeze", f, g.vector([axis])) for f in found)


@converts("topk.default", dtypes=NUMBERS, check=_has_dims)
def topk(g: GraphBuilder, node: Node, x: Node, k: Any, dim: int, largest: bool, *_: Any) -> tuple[Output, ...]:
    return tuple(_places(g, g.value(x), k, dim % len(shape_of(x)), largest))


@converts("sort.default", dtypes=NUMBERS, check=_has_dims)
def sort(g: GraphBuilder, node: Node, x: Node, dim: int, descending: bool) -> tuple[Output, ...]:
    axis = dim % len(shape_of(x))
    size = g.op("gather", g.shape(x), g.axis(axis), g.axis(0))
    return tuple(_places(g, g.value(x), size, axis, descending))
