"""Matrix products: linear layers and products of values, in float16 or on codes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import Granularity
from delegraph_dsp.aot.grids import limits_of, multipliers
from delegraph_dsp.aot.kernel_calls import Use, View
from delegraph_dsp.aot.kernel_graph import CODE_DTYPES, TABLE, KernelGraph, Unsupported, shape_of

__all__: list[str] = []

aten = torch.ops.aten

MOST_EXACT = 2**20
"""The most products of codes in a sum that the machine's accumulators hold exactly."""

MOST_STEPS = {False: 2**30, True: 2**46}
"""The most steps of a bias, by whether accumulators are wide: half of their range, so that there is room for the
products."""

LEAST_RATIO = 2.0**-31
"""The least ratio of the accumulators' unit to the result's: multipliers reach no further (`quantized_multiplier`)."""


@TABLE.converts(aten.linear.default, keep_whole=True)
def linear(graph: KernelGraph, node: Node, source: Node, weight: Node, bias: Node | None) -> View:
    if min(len(side.meta["val"].shape) for side in (source, weight)) < 2:
        raise Unsupported("multiplies a vector")
    return product(graph, node, source, weight, bias, transposed=True)


@TABLE.converts(aten.mm.default, aten.bmm.default)
def matmul(graph: KernelGraph, node: Node, a: Node, b: Node) -> View:
    return product(graph, node, a, b, None)


@TABLE.converts(aten.matmul.default, keep_whole=True)
def any_matmul(graph: KernelGraph, node: Node, a: Node, b: Node) -> View:
    if min(len(side.meta["val"].shape) for side in (a, b)) < 2:
        raise Unsupported("multiplies a vector")
    return product(graph, node, a, b, None)


@TABLE.converts(aten.addmm.default)
def addmm(graph: KernelGraph, node: Node, bias: Node, a: Node, b: Node, beta: Any, alpha: Any) -> View:
    if beta != 1 or alpha != 1 or len(bias.meta["val"].shape) != 1:
        raise Unsupported("its factors are not 1, or its bias is not a vector")
    return product(graph, node, a, b, bias)


def product(graph: KernelGraph, node: Node, a: Node, b: Node, bias: Node | None, transposed: bool = False) -> View:
    """a @ b + bias, b being [N, K] where it is `transposed`."""
    if not node.meta["val"].is_floating_point():
        raise Unsupported("computes integers that no scale belongs to")
    x, y = graph.value(a), graph.value(b)
    shape = shape_of(node)
    if len(y.shape) == 2 and len(x.shape) > 2:  # a linear layer's rows are one dim
        x = graph.reshaped(x, (prod(x.shape[:-1]), x.shape[-1]))
    if y.grid is not None and y.grid.axis not in (None, 0 if transposed else 1):
        raise Unsupported("its weight has a scale for each row of the product")
    y = y.permute((*range(len(y.shape) - 2), -1, -2)) if transposed else y
    if x.grid is not None and y.grid is not None:
        out = _codes(graph, node, x, y, bias)
    elif x.grid is None and y.grid is None:
        out = _halves(graph, x, y, graph.known(np.zeros(1, np.float16)) if bias is None else graph.real(bias))
    else:
        raise Unsupported("one of its operands is quantized and the other is not")
    return graph.reshaped(out, shape)


def _halves(graph: KernelGraph, x: View, y: View, bias: View) -> View:
    out = graph.made("float16", _shape(x, y))
    return _add(graph, "matmul", x, y, [bias], out)


def _codes(graph: KernelGraph, node: Node, x: View, y: View, bias: Node | None) -> View:
    """Accumulators have 32 bits, or 48 if one operand is int16; the bias is an integer in their unit, which is enlarged
    if the bias needs it."""
    grid = graph.grid_of(node)
    assert x.grid is not None and y.grid is not None
    dtypes = set(CODE_DTYPES.values())
    if x.grid.granularity is not Granularity.TENSOR or not {x.dtype, y.dtype} <= dtypes:
        raise Unsupported("its operands are not int8 or int16 with one scale, or one for each column")
    if y.grid.granularity not in (Granularity.TENSOR, Granularity.CHANNEL):
        raise Unsupported(f"its weight is quantized by {y.grid.granularity.value}")
    if y.grid.granularity is Granularity.CHANNEL and not y.grid.is_symmetric:
        raise Unsupported("its weight has a zero point for each channel")
    if x.shape[-1] > MOST_EXACT:
        raise Unsupported(f"sums of {x.shape[-1]} products; there are up to {MOST_EXACT}")
    wide = "int16" in (x.dtype, y.dtype)
    zeros = (int(x.grid.zero_point), int(np.max(y.grid.zero_point)), *limits_of(grid))
    unit = float(x.grid.scale) * np.atleast_1d(y.grid.scale)
    real = np.zeros(1) if bias is None else _content(graph, bias).astype(np.float64)
    least = np.where(real == 0, 0, np.maximum(np.abs(real) / MOST_STEPS[wide], float(grid.scale) * LEAST_RATIO))
    if (unit < least).any():
        y, unit = _in_larger_steps(graph, y, unit, np.maximum(unit, least))
    multiplier, shift = multipliers(unit / float(grid.scale), wide)
    added = np.rint(real / unit).astype(np.int64 if wide else np.int32)
    vectors = [graph.known(vector) for vector in (added, multiplier, shift)]
    return _add(graph, "matmul_int", x, y, vectors, graph.on_grid(grid, _shape(x, y)), zeros)


def _in_larger_steps(
    graph: KernelGraph, y: View, unit: NDArray[np.float64], new_unit: NDArray[np.float64]
) -> tuple[View, NDArray[np.float64]]:
    """A constant weight, rounded again where its columns are tiny beside their bias, and the units then."""
    codes, grid = y.array(), y.grid
    if codes is None or grid is None:
        raise Unsupported("its bias is too large for the scales of its operands")
    zero = np.max(grid.zero_point)
    rounded = np.rint((codes.astype(np.float64) - zero) * (unit / new_unit)) + zero
    return graph.known(rounded.astype(codes.dtype)).on(grid), new_unit


def _content(graph: KernelGraph, bias: Node) -> Any:
    content = graph.constants.array(bias)
    if content is None:
        dequantized = graph.quantizations.weight(bias)
        if dequantized is None:
            raise Unsupported("its bias is not a constant")
        content = dequantized.dequantize()
    return content


def _shape(x: View, y: View) -> tuple[int, ...]:
    batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return (*batch, x.shape[-2], y.shape[-1])


def _add(
    graph: KernelGraph, kernel: str, x: View, y: View, vectors: list[View], out: View, integers: tuple[int, ...] = ()
) -> View:
    """The space is […, M, N, K]; K is not cut."""
    rank = len(out.shape)
    rows, columns, inner = rank - 2, rank - 1, rank
    space = (*out.shape, x.shape[-1])
    uses = [
        Use(_spread(x, rank), (*_batch_axes(x, out), rows, inner)),
        Use(_spread(y, rank), (*_batch_axes(y, out), inner, columns)),
        *(Use(v, (columns if v.shape[0] == out.shape[-1] else None,)) for v in vectors),
        Use(out, tuple(range(rank))),
    ]
    return graph.add(kernel, space, range(rank), uses, integers)


def _spread(view: View, rank: int) -> View:
    return view.expand((1,) * (rank - len(view.shape)) + view.shape)


def _batch_axes(view: View, out: View) -> tuple[int | None, ...]:
    sizes = _spread(view, len(out.shape)).shape[:-2]
    return tuple(axis if size == out.shape[axis] else None for axis, size in enumerate(sizes))
