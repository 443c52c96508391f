"""Operators that read by index: embeddings, and images resized."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import nearest_pixels, resize_scales
from delegraph_dsp.aot.grids import output_integers
from delegraph_dsp.aot.kernel_calls import Use, View
from delegraph_dsp.aot.kernel_graph import TABLE, KernelGraph, Unsupported, shape_of

__all__: list[str] = []

aten = torch.ops.aten

MOST_PARTS = 2**15
"""The most parts into which the distance of two pixels is cut, for weights that are integers."""


@TABLE.converts(aten.embedding.default, keep_whole=True)
def embedding(graph: KernelGraph, node: Node, weight: Node, index: Node, *_: Any) -> View:
    return gather(graph, node, graph.value(weight), graph.value(index))


@TABLE.converts(aten.index_select.default)
def index_select(graph: KernelGraph, node: Node, source: Node, dim: int, index: Node) -> View:
    x = graph.value(source)
    if len(x.shape) != 2 or dim % 2 != 0:
        raise Unsupported("selects along another dim than the rows of a matrix")
    return gather(graph, node, x, graph.value(index))


def gather(graph: KernelGraph, node: Node, table: View, index: View) -> View:
    """Rows of a table. Each tile has all rows, in as many columns as fit."""
    shape = shape_of(node)
    if index.dtype not in ("int32", "int64"):
        raise Unsupported(f"its indices are {index.dtype}")
    grid = None
    if table.grid is not None:
        grid = graph.grid_of(node)
        same = table.grid.granularity is grid.granularity and table.dtype == str(grid.dtype).removeprefix("torch.")
        if not same or (float(table.grid.scale), int(table.grid.zero_point)) != (
            float(grid.scale), int(grid.zero_point),
        ):  # fmt: skip
            raise Unsupported("its table and its result are not on one grid")
    elif table.dtype != "float16":
        raise Unsupported(f"its table is {table.dtype}")
    flat = graph.reshaped(index, (prod(index.shape),))
    out = graph.made(table.dtype, (flat.shape[0], table.shape[1]), grid)
    space = (flat.shape[0], table.shape[1], table.shape[0])
    uses = [Use(table, (2, 1)), Use(flat, (0,)), Use(out, (0, 1))]
    return graph.reshaped(graph.add("gather", space, (0, 1), uses), shape)


# ---- images -------------------------------------------------------------------------------------------------------


@TABLE.converts(aten.upsample_nearest2d.vec, keep_whole=True)
def upsample_nearest(graph: KernelGraph, node: Node, source: Node, size: Any, scales: Any) -> View:
    x, shape = _images(graph, node, source)
    rows, columns = (
        np.array(nearest_pixels("upsample_nearest", 2, x.shape[dim], shape[dim], scale), np.int32)
        for dim, scale in enumerate(resize_scales(node), 1)
    )
    return _resize(graph, node, source, "resize_nearest", x, shape, [rows, columns])


@TABLE.converts(aten.upsample_bilinear2d.vec, keep_whole=True)
def upsample_bilinear(
    graph: KernelGraph, node: Node, source: Node, size: Any, align_corners: bool, scales: Any
) -> View:
    x, shape = _images(graph, node, source)
    steps = [_step(x.shape[dim], shape[dim], align_corners, scale) for dim, scale in enumerate(resize_scales(node), 1)]
    lists = [_between(x.shape[dim], shape[dim], steps[dim - 1], align_corners) for dim in (1, 2)]
    if graph.codes(source) is None:
        real = [part if part.dtype == np.int32 else part.astype(np.float32) for group in lists for part in group]
        return _resize(graph, node, source, "resize_linear", x, shape, real)
    units = [_unit(group[2]) for group in lists]
    whole = [
        (np.rint(part * unit)).astype(np.int32) for group, unit in zip(lists, units, strict=True) for part in
        (group[0] / unit, group[1] / unit, group[2])
    ]  # fmt: skip
    return _resize(graph, node, source, "resize_linear_int", x, shape, whole, units)


def _step(before: int, after: int, align_corners: bool, scale: float | None) -> Fraction:
    """The distance of two pixels of the result, in pixels of the source."""
    if align_corners:
        return Fraction(before - 1, after - 1) if after > 1 else Fraction(0)
    if not scale or before == after:  # torch copies an image that stays as large
        return Fraction(before, after)
    return 1 / Fraction(scale).limit_denominator(2**15)


def _between(before: int, after: int, step: Fraction, align_corners: bool) -> list[NDArray[Any]]:
    """The first and the second pixel, and the weight of the second, for each pixel of the result."""
    pixels = []
    for index in range(after):
        at = index * step if align_corners else max((index + Fraction(1, 2)) * step - Fraction(1, 2), Fraction(0))
        first = min(int(at), before - 1)
        pixels.append((first, min(first + 1, before - 1), float(min(at - first, Fraction(1)))))
    first_ones, second_ones, weights = zip(*pixels, strict=True)
    return [np.array(first_ones, np.int32), np.array(second_ones, np.int32), np.array(weights, np.float64)]


def _unit(weights: NDArray[np.float64]) -> int:
    """The least denominator of all weights."""
    parts = {Fraction(float(weight)).limit_denominator(MOST_PARTS).denominator for weight in weights}
    unit = int(np.lcm.reduce(sorted(parts)))
    if unit > MOST_PARTS:
        raise Unsupported(f"its weights are parts of {unit}; there are up to {MOST_PARTS}")
    return unit


def _images(graph: KernelGraph, node: Node, source: Node) -> tuple[View, tuple[int, ...]]:
    """All channels of all images, one after the other: [C, H, W]."""
    x, shape = graph.value(source), shape_of(node)
    if not node.meta["val"].is_contiguous():
        raise Unsupported("its result does not lie contiguously")
    x = x if graph.codes(source) is not None else graph.as_real(x)
    return graph.reshaped(x, (prod(x.shape[:2]), *x.shape[2:])), (prod(shape[:2]), *shape[2:])


def _resize(
    graph: KernelGraph,
    node: Node,
    source: Node,
    kernel: str,
    x: View,
    shape: tuple[int, ...],
    lists: Sequence[NDArray[Any]],
    units: Sequence[int] = (),
) -> View:
    """The space is [C, OH, OW, H, W]; channels and rows of the result are cut."""
    integers: tuple[int, ...] = ()
    if x.grid is None:
        out = graph.made("float16", shape)
    else:
        grid = graph.grid_of(node)
        if not units and grid != x.grid:
            raise Unsupported("its input and its result are not on one grid")
        out = graph.on_grid(grid, shape)
        if units:
            scale = float(x.grid.scale) / float(grid.scale) / prod(units)
            integers = (*units, int(x.grid.zero_point), *output_integers(scale, grid))
    half = len(lists) // 2
    uses = [
        Use(x, (0, 3, 4)),
        *(Use(graph.known(part), (1 if number < half else None,)) for number, part in enumerate(lists)),
        Use(out, (0, 1, 2)),
    ]
    space = (*shape, *x.shape[1:])
    return graph.reshaped(graph.add(kernel, space, (0, 1), uses, integers), shape_of(node))
