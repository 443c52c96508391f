"""Integers -> integers of the same grid: views, copies, joins, padding, the largest of a window, limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_cpu.aot.quantized.table import OnIntegers, activation, integers_for
from delegraph_onnx.converters.resampling import nearest_gathered
from delegraph_onnx.converters.shapes import PAD_MODES, padded, permutation
from delegraph_onnx.converters.table import TABLE, Convert, aten
from delegraph_onnx.graph_builder import GraphBuilder, Size
from delegraph_onnx.integers import Affine, Integers, narrowed, quantized
from delegraph_onnx.node_facts import CASTS, outer_dtype_of


@integers_for(
    """
    view view_copy _unsafe_view reshape flatten.using_ints unflatten.int unsqueeze unsqueeze_copy squeeze squeeze.dim
    squeeze.dims squeeze_copy squeeze_copy.dim squeeze_copy.dims clone alias alias_copy detach detach_copy contiguous
    dropout flip pixel_shuffle channel_shuffle expand expand_copy repeat slice.Tensor slice_copy.Tensor select.int
    select_copy.int narrow split_with_sizes split_with_sizes_copy split.Tensor split_copy.Tensor chunk unbind.int
    unbind_copy.int stack max_pool1d max_pool2d max_pool3d
""",
    commutes=True,
)
def moved(g: GraphBuilder, node: Node, *_: object) -> OnIntegers:
    """The converter for floats, applied to the integers."""
    return _moved_by(TABLE[node.target], g, node)


@integers_for(
    """
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_nearest1d.vec upsample_nearest2d.vec
    upsample_nearest3d.vec _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d
    _upsample_nearest_exact1d.vec _upsample_nearest_exact2d.vec _upsample_nearest_exact3d.vec
""",
    commutes=True,
)
def resized(g: GraphBuilder, node: Node, *_: object) -> OnIntegers:
    """Between convolutions, whose channels are last, gathering pixels is up to 1.9 times as fast as Resize."""
    return _moved_by(nearest_gathered, g, node)


def _moved_by(convert: Convert, g: GraphBuilder, node: Node) -> OnIntegers:
    first = node.args[0]
    sources: Sequence[Any] = first if isinstance(first, list | tuple) else [first]
    operands = [activation(g, source) for source in sources]
    if operands == [None]:
        operands = [_quantized_ahead(g, node, sources[0])]
    # operands of one grid need no arithmetic, even if their limits differ
    if not all(operands) or len({grid.full for _, grid in operands if grid}) != 1:  # type: ignore[misc]
        return None
    grid = _union([grid for _, grid in operands])  # type: ignore[misc]
    with g.standing_for({source: integers.value for source, (integers, _) in zip(sources, operands, strict=True)}):  # type: ignore[misc]
        results = convert(g, node)
    if isinstance(results, ir.Value):
        return Integers.on(results, grid)
    return [Integers.on(result, grid) for result in results if result is not None]


def _quantized_ahead(g: GraphBuilder, node: Node, source: Node) -> tuple[Integers, Affine] | None:
    """A float that is moved and then quantized is quantized first: the result is the same, and bytes are moved.

    Not where the move drops elements, which would be quantized in vain.
    """
    grid = g.wanted.get(node)
    if grid is None or not _has_all_of(node, source):
        return None
    return Integers.on(quantized(g, g.tensor(source, torch.float32), grid), grid), grid


def _has_all_of(node: Node, source: Node) -> bool:
    """Whether the result has at least as many elements as `source`; of unknown sizes, as many."""
    sizes = [value.meta["val"].numel() for value in (node, source) if isinstance(value.meta["val"], torch.Tensor)]
    if len(sizes) < 2:  # a list of results
        return False
    after, before = sizes
    known = isinstance(after, int) and isinstance(before, int)
    return bool(after >= before) if known else str(after) == str(before)


integers_for("permute permute_copy transpose.int transpose_copy.int t t_copy", commutes=True)(
    lambda g, node, *_: moved(g, node) or _permuted_weight(g, node)
)


def _permuted_weight(g: GraphBuilder, node: Node) -> Integers | None:
    """A weight, permuted ahead of time."""
    weight = g.integers.get(node.args[0])  # type: ignore[arg-type]
    if not isinstance(weight, Integers) or weight.content is None:
        return None
    order = permutation(weight.content.ndim, *node.args[1:])
    content = np.ascontiguousarray(weight.content.transpose(order))
    axis = None if weight.axis is None else order.index(weight.axis)
    return replace(weight, value=g.weight(node.name, content), content=content, axis=axis)


# ---- casts: to the same dtype they move nothing --------------------------------------------------------------------


@integers_for(CASTS)
def cast(g: GraphBuilder, node: Node, self: Node, *_: object) -> OnIntegers:
    """A weight's bytes, where only linear layers read them; other readers take floats, folded at load.

    Scaling behind the product is the same as dequantizing with a scale of 1 before it:

        linear(x, cast(w int8)) * scales            as gpt-fast has it, and ExecuTorch's Llama with `-qmode int8`
    """
    if outer_dtype_of(self) == outer_dtype_of(node):
        return moved(g, node)
    content = g.parameter(self)
    if content is None or content.dtype != np.int8 or not all(_is_weight_of(user, node) for user in node.users):
        return None
    unit, zero = np.array(1, np.float32), np.array(0, np.int8)
    return Integers(g.value(self), unit, zero, content=content, low=-128, high=127)


def _is_weight_of(user: Node, node: Node) -> bool:
    return user.target == aten("linear") and user.args[1] is node and user.args[0] is not node


# ---- padding ------------------------------------------------------------------------------------------------------


@integers_for("constant_pad_nd pad", commutes=True)
def pad(g: GraphBuilder, node: Node, self: Node, pad: Sequence[Size], *how: Any) -> Integers | None:
    source, (*mode, value) = activation(g, self), how
    if source is None:
        return None
    (integers, grid), fill = source, value or 0
    # a fill between two integers is rounded, which is exact only if the result is put on the same grid
    if not grid.full.on_grid(fill) and grid.full != g.wanted.get(node):
        return None
    filled = g.constant(np.array(grid.full(fill), grid.dtype))
    with g.standing_for({self: integers.value}):
        moved = padded(g, node, self, pad, PAD_MODES[mode[0] if mode else "constant"], filled)
        return Integers.on(moved, grid.full)


# ---- limits -------------------------------------------------------------------------------------------------------


@integers_for("relu relu6 hardtanh clamp", commutes=True)
def clamp(g: GraphBuilder, node: Node, self: Node, *bounds: Any) -> Integers | None:
    low, high = {aten("relu"): (0.0, None), aten("relu6"): (0.0, 6.0)}.get(node.target, bounds)  # type: ignore[call-overload]
    numbers = [None if bound is None else g.number(bound) for bound in (low, high)]
    known = all(bound is None or number is not None for bound, number in zip((low, high), numbers, strict=True))
    return _limited(g, node, self, *numbers) if known else None


def _limited(g: GraphBuilder, node: Node, self: Node, low: float | None, high: float | None) -> Integers | None:
    """Exact where the limits are on the grid; otherwise only if the result is put on the same grid."""
    source = activation(g, self)
    if source is None:
        return None
    integers, grid = source
    bounds = [bound for bound in (low, high) if bound is not None]
    if grid.full != g.wanted.get(node) and not all(map(grid.full.on_grid, bounds)):
        return None
    first = grid.low if low is None else max(grid.low, grid.full(low))
    last = grid.high if high is None else min(grid.high, grid.full(high))
    limits = replace(grid, low=min(first, last), high=last)
    return Integers.on(narrowed(g, integers.value, grid, limits), limits)


# ---- helpers ------------------------------------------------------------------------------------------------------


def _union(grids: Sequence[Affine]) -> Affine:
    """The common grid of grids that are equal but for their limits: with the widest limits."""
    return replace(grids[0], low=min(grid.low for grid in grids), high=max(grid.high for grid in grids))
