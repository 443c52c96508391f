"""Images at another size or at other places: upsampling, grid sampling, pixel shuffling.

The conventions are torch's (`ATen/native/UpSample.h`, `GridSampler.h`): a pixel is a unit square and its sample lies in
the middle, unless `align_corners` makes the corner samples of input and output coincide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.runtime.kernels import BoundCall

from .evaluate import function_call
from .library import Array, Context, kernel
from .promotion import (
    FLOAT32,
    DType,
    check_floating,
    check_one_of,
    check_result,
    check_same_dtype,
    compute_type,
    float_type,
    is_integral,
)
from .shapes import Shape, check_rank, per_dim

Taps = tuple[Array, Array]
"""Along one axis: input places (K, out) and their weights (K, out); an output is the weighted sum of K inputs."""


def _output_size(input: Array, size: Sequence[int] | None, factors: Sequence[float] | None) -> Shape:
    check_rank(input, (4,), "input")
    if (size is None) == (factors is None):
        raise InvalidArgument("exactly one of the arguments 'output_size' and 'scale_factors' must be given")
    if size is not None:
        output = per_dim(size, 2, "output_size")
    else:
        assert factors is not None
        if len(factors) != 2:
            raise InvalidArgument(f"argument 'scale_factors' must have 2 values, but is {list(factors)}")
        output = tuple(int(n * f) for n, f in zip(input.shape[2:], factors, strict=True))
    if min(output) < 1 or 0 in input.shape[1:]:
        raise InvalidArgument(f"argument 'input' of shape {input.shape} cannot be resized to {output}")
    return output


def _factor(factors: Sequence[float] | None, axis: int) -> float | None:
    return None if factors is None else factors[axis]


def _step(size: int, count: int, factor: float | None, align_corners: bool, dtype: DType) -> np.floating[Any]:
    """Distance between the input coordinates of neighbouring outputs."""
    real = dtype.type
    if align_corners:
        step = real(size - 1) / real(count - 1) if count > 1 else real(0)
    else:
        step = real(1 / factor) if factor else real(size) / real(count)
    return cast("np.floating[Any]", step)


# ---- nearest ----------------------------------------------------------------------------------------


@kernel("aten::upsample_nearest2d.vec_out")
def upsample_nearest(
    context: Context, input: Array, output_size: Sequence[int] | None, scale_factors: Sequence[float] | None, out: Array
) -> BoundCall:
    size = _output_size(input, output_size, scale_factors)
    check_result(input.dtype, out)
    out = context.resize(out, (*input.shape[:2], *size))
    rows, columns = (_nearest(input.shape[i + 2], size[i], _factor(scale_factors, i)) for i in (0, 1))
    places = (..., rows[:, None], columns)
    return lambda: np.copyto(out, input[places], casting="unsafe")


def _nearest(size: int, count: int, factor: float | None) -> Array:
    if count == size:
        return np.arange(count)
    if count == 2 * size:
        return np.arange(count) // 2
    step = _step(size, count, factor, False, FLOAT32)
    return np.minimum(np.floor(np.arange(count, dtype=FLOAT32) * step).astype(np.int64), size - 1)


# ---- bilinear ---------------------------------------------------------------------------------------


@kernel("aten::upsample_bilinear2d.vec_out")
def upsample_bilinear(
    context: Context,
    input: Array,
    output_size: Sequence[int] | None,
    align_corners: bool,
    scale_factors: Sequence[float] | None,
    out: Array,
) -> BoundCall:
    size = _output_size(input, output_size, scale_factors)
    compute = compute_type(float_type(input.dtype))
    taps = [
        _linear_taps(n, m, _factor(scale_factors, i), align_corners, compute)
        for i, (n, m) in enumerate(zip(input.shape[2:], size, strict=True))
    ]
    return _interpolate(context, input, size, taps, out)


@kernel("aten::_upsample_bilinear2d_aa.out")
def upsample_bilinear_antialiased(
    context: Context,
    self: Array,
    output_size: Sequence[int],
    align_corners: bool,
    scales_h: float | None,
    scales_w: float | None,
    out: Array,
) -> BoundCall:
    """Where the image shrinks, the linear filter is widened by as much."""
    size = _output_size(self, output_size, None)
    compute = compute_type(float_type(self.dtype))
    taps = [
        _antialiased_taps(n, m, factor, align_corners, compute)
        for n, m, factor in zip(self.shape[2:], size, (scales_h, scales_w), strict=True)
    ]
    return _interpolate(context, self, size, taps, out)


def _interpolate(context: Context, input: Array, size: Shape, taps: Sequence[Taps], out: Array) -> BoundCall:
    check_same_dtype(out, "out", input, "input")
    out = context.resize(out, (*input.shape[:2], *size))
    finish = np.rint if is_integral(input.dtype) else np.positive
    function = partial(_weigh_both, finish, tuple(taps))
    return function_call(context, function, (input,), out, compute_type(float_type(input.dtype)))


def _weigh_both(finish: np.ufunc, taps: tuple[Taps, ...], x: Array, out: Array) -> None:
    for axis, along_axis in enumerate(taps, 2):
        x = _weigh(x, along_axis, axis)
    finish(x, out)


def _weigh(x: Array, taps: Taps, axis: int) -> Array:
    shape = (-1, *(1,) * (x.ndim - 1 - axis))
    terms = (np.take(x, places, axis) * weights.reshape(shape) for places, weights in zip(*taps, strict=True))
    total: Array = next(terms)
    for term in terms:
        total += term
    return total


def _linear_taps(size: int, count: int, factor: float | None, align_corners: bool, dtype: DType) -> Taps:
    step = _step(size, count, factor, align_corners, dtype)
    outputs = np.arange(count, dtype=dtype)
    half = dtype.type(0.5)
    at = outputs * step if align_corners else np.maximum((outputs + half) * step - half, 0)
    first = np.minimum(at.astype(np.int64), size - 1)
    second = np.minimum(first + 1, size - 1)
    weight = np.clip(at - first, 0, 1).astype(dtype)
    return np.stack((first, second)), np.stack((1 - weight, weight))


def _antialiased_taps(size: int, count: int, factor: float | None, align_corners: bool, dtype: DType) -> Taps:
    step = _step(size, count, factor, align_corners, dtype)
    support = max(step, dtype.type(1))
    half = dtype.type(0.5)
    centers = (np.arange(count, dtype=dtype) + half) * step
    first = np.maximum((centers - support + half).astype(np.int64), 0)
    end = np.minimum((centers + support + half).astype(np.int64), size)
    places = first + np.arange(int((end - first).max()))[:, None]
    distances = np.abs((places.astype(dtype) - centers + half) * (1 / support))
    weights = np.where(places < end, np.maximum(1 - distances, 0), 0)
    return np.minimum(places, size - 1), (weights / weights.sum(0)).astype(dtype)


# ---- grid sampling ----------------------------------------------------------------------------------

_BILINEAR, _NEAREST, _BICUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)


@kernel("aten::grid_sampler_2d.out")
def grid_sampler(
    context: Context,
    input: Array,
    grid: Array,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    out: Array,
) -> BoundCall:
    """input (N, C, H, W) at grid (N, h, w, 2) of (x, y) in -1 … 1 -> (N, C, h, w)."""
    check_one_of(interpolation_mode, "interpolation_mode", (_BILINEAR, _NEAREST, _BICUBIC))
    check_one_of(padding_mode, "padding_mode", (_ZEROS, _BORDER, _REFLECTION))
    check_rank(input, (4,), "input")
    check_floating(input, "input")
    check_same_dtype(grid, "grid", input, "input")
    check_result(input.dtype, out)
    if grid.ndim != 4 or grid.shape[0] != input.shape[0] or grid.shape[3] != 2:
        raise InvalidArgument(f"argument 'grid' of shape {grid.shape} does not fit argument 'input' {input.shape}")
    if 0 in input.shape[1:]:
        raise InvalidArgument(f"argument 'input' of shape {input.shape} has nothing to sample")
    out = context.resize(out, (*input.shape[:2], *grid.shape[1:3]))
    function = partial(_SAMPLERS[interpolation_mode], padding_mode, align_corners)
    return function_call(context, function, (input, grid), out, compute_type(input.dtype))


def _coordinates(grid: Array, sizes: Shape, align_corners: bool) -> tuple[Array, Array]:
    """(y, x) in pixels of grid (N, h, w, 2)."""
    y, x = (
        (g + 1) / 2 * (size - 1) if align_corners else ((g + 1) * size - 1) / 2
        for g, size in zip((grid[..., 1], grid[..., 0]), sizes, strict=True)
    )
    return y, x


def _fold_in(at: Array, size: int, padding_mode: int, align_corners: bool) -> Array:
    """Coordinates outside of the image moved into it; zero padding leaves them there."""
    if padding_mode == _REFLECTION:
        at = _reflect(at, 0, size - 1) if align_corners else _reflect(at, -0.5, size - 0.5)
    if padding_mode != _ZEROS:
        at = np.fmin(np.fmax(at, 0), size - 1)  # NaN becomes 0
    return at


def _reflect(at: Array, low: float, high: float) -> Array:
    span = high - low
    if span == 0:
        return np.zeros_like(at)
    distance = np.abs(at - low)
    flips, rest = np.floor(distance / span), np.fmod(distance, span)
    return np.where(flips % 2 == 0, rest + low, high - rest).astype(at.dtype)


def _pixels(x: Array, row: Array, column: Array) -> Array:
    """x (N, C, H, W) at integer-valued (N, h, w) rows and columns -> (N, C, h, w); 0 outside."""
    height, width = x.shape[2:]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    rows, columns = (np.where(inside, v, 0).astype(np.int64) for v in (row, column))
    images = np.arange(x.shape[0])[:, None, None]
    values = np.moveaxis(x[images, :, rows, columns], 3, 1)
    return np.where(inside[:, None], values, x.dtype.type(0))


def _sample_nearest(padding_mode: int, align_corners: bool, x: Array, grid: Array, out: Array) -> None:
    sizes = x.shape[2:]
    row, column = (
        np.rint(_fold_in(at, size, padding_mode, align_corners))
        for at, size in zip(_coordinates(grid, sizes, align_corners), sizes, strict=True)
    )
    np.copyto(out, _pixels(x, row, column))


def _sample_bilinear(padding_mode: int, align_corners: bool, x: Array, grid: Array, out: Array) -> None:
    sizes = x.shape[2:]
    row, column = (
        _fold_in(at, size, padding_mode, align_corners)
        for at, size in zip(_coordinates(grid, sizes, align_corners), sizes, strict=True)
    )
    top, left = np.floor(row), np.floor(column)
    down, right = row - top, column - left
    out.fill(0)
    for i, weight_y in enumerate((1 - down, down)):
        for j, weight_x in enumerate((1 - right, right)):
            out += _pixels(x, top + i, left + j) * (weight_y * weight_x)[:, None]


def _sample_bicubic(padding_mode: int, align_corners: bool, x: Array, grid: Array, out: Array) -> None:
    sizes = x.shape[2:]
    row, column = _coordinates(grid, sizes, align_corners)
    top, left = np.floor(row), np.floor(column)
    rows_and_weights, columns_and_weights = (
        [(_fold_in(first + k - 1, size, padding_mode, align_corners), w) for k, w in enumerate(_cubic(at - first))]
        for at, first, size in ((row, top, sizes[0]), (column, left, sizes[1]))
    )
    out.fill(0)
    for r, weight_y in rows_and_weights:
        for c, weight_x in columns_and_weights:
            out += _pixels(x, np.rint(r), np.rint(c)) * (weight_y * weight_x)[:, None]


def _cubic(t: Array) -> list[Array]:
    """Weights of the four neighbours of a point `t` behind the second: Keys' cubic convolution with a = -0.75."""
    a = -0.75

    def near(d: Array) -> Array:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Array) -> Array:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


_SAMPLERS = {_BILINEAR: _sample_bilinear, _NEAREST: _sample_nearest, _BICUBIC: _sample_bicubic}


# ---- pixels and channels ----------------------------------------------------------------------------


@kernel("aten::pixel_shuffle.out")
def pixel_shuffle(context: Context, self: Array, upscale_factor: int, out: Array) -> BoundCall:
    """(*, C r², H, W) -> (*, C, H r, W r)."""
    r = upscale_factor
    if self.ndim < 3 or r < 1 or self.shape[-3] % (r * r):
        raise InvalidArgument(f"argument 'self' of shape {self.shape} cannot be shuffled by {r}")
    check_result(self.dtype, out)
    *batch, c, h, w = self.shape
    out = context.resize(out, (*batch, c // (r * r), h * r, w * r))
    n = math.prod(batch)
    order = (0, 1, 4, 2, 5, 3)
    return lambda: np.copyto(
        out,
        self.reshape(n, c // (r * r), r, r, h, w).transpose(order).reshape(out.shape),
        casting="unsafe",
    )


@kernel("aten::pixel_unshuffle.out")
def pixel_unshuffle(context: Context, self: Array, downscale_factor: int, out: Array) -> BoundCall:
    """(*, C, H r, W r) -> (*, C r², H, W)."""
    r = downscale_factor
    if self.ndim < 3 or r < 1 or self.shape[-2] % r or self.shape[-1] % r:
        raise InvalidArgument(f"argument 'self' of shape {self.shape} cannot be unshuffled by {r}")
    check_result(self.dtype, out)
    *batch, c, h, w = self.shape
    out = context.resize(out, (*batch, c * r * r, h // r, w // r))
    n = math.prod(batch)
    order = (0, 1, 3, 5, 2, 4)
    return lambda: np.copyto(
        out, self.reshape(n, c, h // r, r, w // r, r).transpose(order).reshape(out.shape), casting="unsafe"
    )
