"""Operators on rows: softmax, norms, reductions. Their dim is moved behind the others, as a view."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np
import torch
from torch.fx import Node

from delegraph.aot.authoring import reduced_dims
from delegraph_dsp.aot.grids import exponentials, output_integers
from delegraph_dsp.aot.kernel_calls import Use, View
from delegraph_dsp.aot.kernel_graph import TABLE, KernelGraph, Unsupported, shape_of
from delegraph_dsp.program import REDUCTIONS
from delegraph_dsp.runtime.kernels.rows import NORM_BITS, WEIGHT_BITS

__all__: list[str] = []

aten = torch.ops.aten

MOST_NORMALIZED: Final = 2**15
"""The most codes in a normalized row: exact sums of squares then fit in 64 bits."""


def rows(
    graph: KernelGraph,
    kernel: str,
    source: View,
    whole: Sequence[View],
    out: View,
    integers: Sequence[int] = (),
    reals: Sequence[float] = (),
) -> View:
    """Call a kernel on rows of `source`; each row sees `whole` operands entirely."""
    rank = len(source.shape)
    axes = tuple(range(rank - 1))
    last = rank - 1
    uses = [
        Use(source, (*axes, last)),
        *(Use(view, (None,) * len(view.shape)) for view in whole),
        Use(out, (*axes, last if out.shape[-1] == source.shape[-1] else None)),
    ]
    return graph.add(kernel, source.shape, axes, uses, integers, reals)


def moved_back(view: View, dim: int) -> View:
    """The last dim moved to the place `dim`."""
    order = list(range(len(view.shape) - 1))
    order.insert(dim, len(view.shape) - 1)
    return view.permute(order)


# ---- softmax ------------------------------------------------------------------------------------------------------


@TABLE.converts(aten.softmax.int, aten.log_softmax.int, keep_whole=True)
def softmax(graph: KernelGraph, node: Node, source: Node, dim: int, dtype: Any) -> View:
    if dtype is not None and dtype != source.meta["val"].dtype:
        raise Unsupported(f"converts to {dtype} before")
    return _softmax(graph, node, source, dim, "log" in str(node.target))


@TABLE.converts(aten._softmax.default, aten._log_softmax.default)
def core_softmax(graph: KernelGraph, node: Node, source: Node, dim: int, half_to_float: bool) -> View:
    if half_to_float:
        raise Unsupported("gives float32 for float16")
    return _softmax(graph, node, source, dim, "log" in str(node.target))


def _softmax(graph: KernelGraph, node: Node, source: Node, dim: int, logarithm: bool) -> View:
    shape = graph.value(source).shape
    if not shape:
        raise Unsupported("has no dim")
    dim %= len(shape)
    codes = graph.codes(source)
    if codes is None:
        x = graph.real(source).move_last(dim)
        return moved_back(rows(graph, "softmax", x, [], graph.made("float16", x.shape), (int(logarithm),)), dim)
    if logarithm:
        raise Unsupported("the logarithm of softmax is there for float16 alone")
    grid = graph.grid_of(node)
    x = codes.move_last(dim)
    assert x.grid is not None
    tables = [graph.known(table) for table in exponentials(float(x.grid.scale))]
    integers = output_integers(2.0**-30 / float(grid.scale), grid)
    return moved_back(rows(graph, "softmax_int", x, tables, graph.on_grid(grid, x.shape), integers), dim)


# ---- norms --------------------------------------------------------------------------------------------------------


@TABLE.converts(aten.layer_norm.default, keep_whole=True)
def layer_norm(
    graph: KernelGraph, node: Node, source: Node, shape: Sequence[int], weight: Any, bias: Any, eps: float, *_: Any
) -> View:
    return norm(graph, node, source, shape, weight, bias, eps, subtract_mean=True)


@TABLE.converts(aten.native_layer_norm.default)
def native_layer_norm(
    graph: KernelGraph, node: Node, source: Node, shape: Sequence[int], weight: Any, bias: Any, eps: float
) -> list[View | None]:
    if any(user.args[1] != 0 for user in node.users):
        raise Unsupported("its mean or deviation is read")
    return [norm(graph, node, source, shape, weight, bias, eps, subtract_mean=True), None, None]


@TABLE.converts(aten.rms_norm.default, keep_whole=True)
def rms_norm(
    graph: KernelGraph, node: Node, source: Node, shape: Sequence[int], weight: Any, eps: float | None
) -> View:
    default = torch.finfo(source.meta["val"].dtype).eps
    return norm(graph, node, source, shape, weight, None, default if eps is None else eps, subtract_mean=False)


def norm(
    graph: KernelGraph,
    node: Node,
    source: Node,
    shape: Sequence[int],
    weight: Any,
    bias: Any,
    eps: float,
    subtract_mean: bool,
) -> View:
    """The last dims are normalized as one."""
    count = prod(shape)
    value = graph.value(source)
    outer = value.shape[: len(value.shape) - len(shape)]
    codes = graph.codes(source)
    x = graph.reshaped(value if codes is None else codes, (*outer, count))
    if codes is None:
        x = graph.as_real(x)
        affine = [_vector(graph, weight, count, 1.0), _vector(graph, bias, count, 0.0)]
        out = graph.made("float16", x.shape)
        rows(graph, "norm", x, affine, out, (int(subtract_mean),), (eps,))
    else:
        out = _norm_codes(graph, node, x, weight, bias, eps, subtract_mean)
    return graph.reshaped(out, value.shape)


def _vector(graph: KernelGraph, argument: Any, count: int, default: float) -> View:
    if argument is None:
        return graph.known(np.full(count, default, np.float16))
    return graph.reshaped(graph.real(argument), (count,))


def _norm_codes(
    graph: KernelGraph, node: Node, x: View, weight: Any, bias: Any, eps: float, subtract_mean: bool
) -> View:
    """The weight is rounded to int16, the bias to the unit of normalized values times weights, after the bits that are
    cut off."""
    count, grid = x.shape[-1], graph.grid_of(node)
    if count > MOST_NORMALIZED:
        raise Unsupported(f"normalizes {count} codes; up to {MOST_NORMALIZED} are exact")
    assert x.grid is not None
    gamma, beta = (_real_vector(graph, argument, count, fill) for argument, fill in ((weight, 1.0), (bias, 0.0)))
    step = max(float(np.abs(gamma).max()), 2.0**-20) / 32767
    unit = step * 2.0 ** (WEIGHT_BITS - NORM_BITS)
    limit = 2.0**30
    affine = [
        graph.known(np.rint(gamma / step).astype(np.int16)),
        graph.known(np.clip(np.rint(beta / unit), -limit, limit).astype(np.int32)),
    ]
    integers = (int(subtract_mean), int(x.grid.zero_point), *output_integers(unit / float(grid.scale), grid))
    epsilon = eps / float(x.grid.scale) ** 2
    return rows(graph, "norm_int", x, affine, graph.on_grid(grid, x.shape), integers, (epsilon,))


def _real_vector(graph: KernelGraph, argument: Any, count: int, default: float) -> Any:
    if argument is None:
        return np.full(count, default)
    content = graph.constants.array(argument)
    if content is None:
        stored = graph.quantizations.weight(argument)
        if stored is None:
            raise Unsupported("its weight or bias is not a constant")
        content = stored.dequantize()
    return content.reshape(count).astype(np.float64)


# ---- reductions ---------------------------------------------------------------------------------------------------


def reduction(graph: KernelGraph, node: Node, source: Node, dims: Any, function: str) -> View:
    """`dims` are moved behind the others and become one."""
    value = graph.value(source)
    rank = len(value.shape)
    reduced = reduced_dims(rank, dims)
    if not reduced:
        raise Unsupported("reduces no dim")
    kept = [dim for dim in range(rank) if dim not in reduced]
    count = prod(value.shape[dim] for dim in reduced)
    outer = tuple(value.shape[dim] for dim in kept)
    x = graph.reshaped(value.permute([*kept, *reduced]), (*outer, count))
    shape = shape_of(node)
    if graph.codes(source) is None:
        out = rows(
            graph, "reduce", graph.as_real(x), [], graph.made("float16", (*outer, 1)), (REDUCTIONS.index(function),)
        )
        return graph.reshaped(out, shape)
    grid = graph.grid_of(node)
    assert x.grid is not None
    scale = float(x.grid.scale) / float(grid.scale) / (count if function == "mean" else 1)
    integers = (REDUCTIONS.index(function), int(x.grid.zero_point), *output_integers(scale, grid))
    return graph.reshaped(rows(graph, "reduce_int", x, [], graph.on_grid(grid, (*outer, 1)), integers), shape)


@TABLE.converts(aten.sum.dim_IntList, aten.mean.dim)
def total(graph: KernelGraph, node: Node, source: Node, dims: Any, keepdim: bool, dtype: Any) -> View:
    if dtype is not None and dtype != source.meta["val"].dtype:
        raise Unsupported(f"converts to {dtype} before")
    return reduction(graph, node, source, dims, "mean" if "mean" in str(node.target) else "sum")


@TABLE.converts(aten.amax.default, aten.amin.default)
def extreme(graph: KernelGraph, node: Node, source: Node, dims: Any, keepdim: bool) -> View:
    return reduction(graph, node, source, dims, "amax" if "amax" in str(node.target) else "amin")
