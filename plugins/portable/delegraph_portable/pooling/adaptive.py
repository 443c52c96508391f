"""Pooling to a given size: the mean or the maximum of bins that a dim is divided into, and of windows at random places.

Bin i of n over `size` inputs holds those from ⌊i size/n⌋ to ⌈(i+1) size/n⌉ (`ATen/native/AdaptivePooling.h`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import function_call, nothing, staged_call, staging_buffer
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_floating, check_same_dtype, compute_type
from delegraph.runtime.numpy_kernels.shapes import Shape, along, check_rank, check_shape, per_dim

from ..library import kernel, prepare_out

Sizes = Sequence[int]


def bins(size: int, count: int) -> list[slice]:
    """The bins of `count` outputs over `size` inputs; they overlap where one does not divide the other."""
    return [slice(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _check(rank: int, self: Array, output_size: Sizes) -> Shape:
    """The shape of the result."""
    check_rank(self, (rank + 1, rank + 2), "self")
    size = per_dim(output_size, rank, "output_size")
    if 0 in self.shape[-rank - 1 :]:
        raise InvalidArgument(f"argument 'self' of shape {self.shape} has nothing to average or to choose from")
    if min(size) < 0:
        raise InvalidArgument(f"argument 'output_size' must not be negative, but is {list(output_size)}")
    return (*self.shape[:-rank], *size)


# ---- mean -------------------------------------------------------------------------------------------


def _adaptive_avg_pool(rank: int, context: Context, self: Array, output_size: Sizes, out: Array) -> BoundCall:
    shape = _check(rank, self, output_size)
    check_floating(self, "self")
    out = prepare_out(context, out, self.dtype, shape)
    even = all(n and size % n == 0 for size, n in zip(self.shape[-rank:], shape[-rank:], strict=True))
    function = partial(_average_blocks if even else _average_bins, rank)
    return function_call(context, function, (self,), out, compute_type(self.dtype))


def _average_blocks(rank: int, x: Array, out: Array) -> None:
    """Bins of one size that do not overlap: a view with a dim for the places in each bin, and one reduction."""
    batch = x.shape[:-rank]
    split = [(n, size // n) for n, size in zip(out.shape[-rank:], x.shape[-rank:], strict=True)]
    axes = tuple(len(batch) + 2 * axis + 1 for axis in range(rank))
    np.mean(x.reshape(*batch, *(size for pair in split for size in pair)), axes, out=out)


def _average_bins(rank: int, x: Array, out: Array) -> None:
    """One dim after the other: a mean of means."""
    for axis in range(x.ndim - 1, x.ndim - rank - 1, -1):
        count = out.shape[axis]
        means = out if axis == x.ndim - rank else np.empty((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype)
        for i, part in enumerate(bins(x.shape[axis], count)):
            np.mean(x[along(axis, part)], axis, out=means[along(axis, i)])
        x = means


kernel("aten::_adaptive_avg_pool2d.out", "aten::adaptive_avg_pool2d.out")(partial(_adaptive_avg_pool, 2))
kernel("aten::_adaptive_avg_pool3d.out", "aten::adaptive_avg_pool3d.out")(partial(_adaptive_avg_pool, 3))
kernel("aten::adaptive_avg_pool1d.out")(partial(_adaptive_avg_pool, 1))


# ---- maximum ----------------------------------------------------------------------------------------


def _adaptive_max_pool(
    rank: int, context: Context, self: Array, output_size: Sizes, out: Array, indices: Array
) -> BoundCall:
    """Maximum of each bin, and its index in the flattened spatial dims."""
    shape = _check(rank, self, output_size)
    check_floating(self, "self")
    check_same_dtype(out, "out", self, "self")
    out, indices = context.resize(out, shape), context.resize(indices, shape)
    if out.size == 0:
        return nothing
    values = staging_buffer(context, self, compute_type(self.dtype))
    places = np.arange(math.prod(self.shape[-rank:])).reshape(self.shape[-rank:])
    spread = np.broadcast_to(places, self.shape)

    def call() -> None:
        best, best_places = values.buffer, spread
        for axis in range(self.ndim - 1, self.ndim - rank - 1, -1):
            parts = bins(self.shape[axis], shape[axis])
            winners = [best_of(best[along(axis, part)], best_places[along(axis, part)], axis) for part in parts]
            best, best_places = (np.concatenate(arrays, axis) for arrays in zip(*winners, strict=True))
        np.copyto(out, best, casting="unsafe")
        np.copyto(indices, best_places)

    return staged_call(call, [values], [])


def best_of(values: Array, places: Array, axis: int) -> tuple[Array, Array]:
    """The maximum along `axis`, kept at size 1, and its place as torch's scan finds it: the first, but the last NaN."""
    at = np.argmax(values, axis, keepdims=True)
    best = np.take_along_axis(values, at, axis)
    if values.dtype.kind == "f" and np.isnan(best).any():
        backwards = np.isnan(values)[along(axis, slice(None, None, -1))]
        last = values.shape[axis] - 1 - np.argmax(backwards, axis, keepdims=True)
        at = np.where(np.isnan(best), last, at)
    return best, np.take_along_axis(places, at, axis)


kernel("aten::adaptive_max_pool2d.out")(partial(_adaptive_max_pool, 2))
kernel("aten::adaptive_max_pool3d.out")(partial(_adaptive_max_pool, 3))


# ---- windows at random places -----------------------------------------------------------------------


def _fractional_max_pool(
    rank: int,
    context: Context,
    self: Array,
    kernel_size: Sizes,
    output_size: Sizes,
    random_samples: Array,
    output: Array,
    indices: Array,
) -> BoundCall:
    """Maximum of windows whose distances vary (B. Graham, "Fractional Max-Pooling", 2014).

    `random_samples` (N, C, rank), from 0 to 1, shift the windows of each plane: in two dims (x, y), in three (t, y, x).
    """
    shape = _check(rank, self, output_size)
    kernel_sizes = per_dim(kernel_size, rank, "kernel_size")
    check_floating(self, "self")
    check_same_dtype(random_samples, "random_samples", self, "self")
    check_same_dtype(output, "output", self, "self")
    planes = self.shape[:-rank]
    check_shape(random_samples, (planes[0] if len(planes) == 2 else 1, planes[-1], rank), "random_samples")
    for size, k, n in zip(self.shape[-rank:], kernel_sizes, shape[-rank:], strict=True):
        if k < 1 or n < 1 or n + k - 1 > size:
            raise InvalidArgument(f"argument 'self' of shape {self.shape} is too small for {n} windows of {k}")
    output, indices = context.resize(output, shape), context.resize(indices, shape)
    spatial, results = self.shape[-rank:], (output, indices)
    compute = compute_type(self.dtype)

    def call() -> None:
        inputs = self.reshape(-1, *spatial).astype(compute, copy=False)
        shifts = random_samples.reshape(-1, rank).astype(compute)
        if rank == 2:
            shifts = shifts[:, ::-1]
        starts = [
            _starts(size, k, n, shifts[:, axis])
            for axis, (size, k, n) in enumerate(zip(spatial, kernel_sizes, shape[-rank:], strict=True))
        ]
        values, places = _under_taps(inputs, starts, kernel_sizes)
        for result, best in zip(results, best_of(values, places, rank + 1), strict=True):
            np.copyto(result, best.reshape(shape), casting="unsafe")

    return call


def _starts(size: int, kernel_size: int, count: int, shift: Array) -> Array:
    """Where the windows start: (planes, count). The last ends where the input does."""
    starts = np.full((len(shift), count), size - kernel_size, np.int64)
    if count > 1:
        step = shift.dtype.type(size - kernel_size) / shift.dtype.type(count - 1)
        shifted = (np.arange(count - 1, dtype=shift.dtype) + shift[:, None]) * step
        starts[:, :-1] = shifted.astype(np.int64) - (shift * step).astype(np.int64)[:, None]
    return starts


def _under_taps(x: Array, starts: Sequence[Array], kernel_sizes: Shape) -> tuple[Array, Array]:
    """The values, and their flat places (planes, *output, taps), under each kernel point."""
    rank = len(starts)
    spatial = x.shape[1:]
    flat = x.reshape(len(x), math.prod(spatial))
    plane = np.arange(len(x)).reshape(-1, *(1,) * rank)
    places = []
    for tap in product(*map(range, kernel_sizes)):
        place = np.zeros((), np.int64)
        for axis, (start, t) in enumerate(zip(starts, tap, strict=True)):
            shape = (len(x), *(start.shape[1] if dim == axis else 1 for dim in range(rank)))
            place = place * spatial[axis] + (start + t).reshape(shape)
        places.append(place)
    stacked = np.stack(np.broadcast_arrays(*places), -1)
    return flat[plane[..., None], stacked], stacked


kernel("aten::fractional_max_pool2d.output")(partial(_fractional_max_pool, 2))
kernel("aten::fractional_max_pool3d.output")(partial(_fractional_max_pool, 3))
