"""Maximum and mean over windows of one to three spatial dims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.lazy_dataclass import dataclass
from delegraph.runtime.numpy_kernels.evaluate import StagingBuffer, staged_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import BOOL, INT64, DType, check_kind, check_result, compute_type
from delegraph.runtime.numpy_kernels.shapes import Shape

from ..library import in_turn, kernel, prepare_out
from .windows import Windows, pad_call, windows, workspace_like

Sizes = Sequence[int]


# ---- maximum ----------------------------------------------------------------------------------------


def _max_pool(
    rank: int,
    context: Context,
    self: Array,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    out: Array,
    indices: Array,
) -> BoundCall:
    """Maximum of each window, and its index in the flattened spatial dims; NaN wins."""
    check_result(self.dtype, out)
    w = windows(rank, self, kernel_size, stride, padding, dilation, ceil_mode)
    shape = (*self.shape[:-rank], *w.output)
    out, indices = context.resize(out, shape), context.resize(indices, shape)
    compute = compute_type(self.dtype)
    best = StagingBuffer(out, out if out.dtype == compute else workspace_like(context, self, shape, compute))
    lowest = -math.inf if compute.kind == "f" else np.iinfo(compute).min
    padded, pad = pad_call(context, w, self, compute, lowest)
    views = [w.under(padded, tap) for tap in w.taps()]
    taps = _Taps.of(w)
    memory = _Scratch.of(context, self, shape, taps.ranks.dtype)
    find = partial(_find_maxima, taps, memory, views, best.buffer, indices)
    return staged_call(in_turn(pad, find), [], [best])


@dataclass(frozen=True, slots=True)
class _Taps:
    """How to find which kernel tap each maximum came from: taps are numbered downwards, so the first has the largest.

    `ranks` (taps, *output): each tap's number where it lies in the input, 0 in the padding. `offsets`: number -> what
    the tap adds to `base` (*output), the index of each window's start in the flattened spatial dims.
    """

    ranks: Array
    offsets: Array
    base: Array

    @classmethod
    def of(cls, w: Windows) -> _Taps:
        taps = list(w.taps())
        steps = [math.prod(w.input[axis + 1 :]) for axis in range(len(w.input))]
        ranks = np.empty((len(taps), *w.output), np.min_scalar_type(len(taps)))
        offsets = np.zeros(len(taps) + 1, np.int64)
        for number, tap, inside in zip(range(len(taps), 0, -1), taps, ranks, strict=True):
            inside.fill(number)
            for axis, at in enumerate(_grid(w, tap)):
                inside *= (at >= 0) & (at < w.input[axis])
            offsets[number] = sum(t * d * step for t, d, step in zip(tap, w.dilation, steps, strict=True))
        base = np.zeros(w.output, np.int64)
        for at, step in zip(_grid(w, (0,) * len(steps)), steps, strict=True):
            base += at * step
        return cls(ranks, offsets, base)


@dataclass(frozen=True, slots=True)
class _Scratch:
    """Memory of the output's shape, its dims in the input's order."""

    is_best: Array
    rank: Array
    winner: Array
    number: Array
    place: Array

    @classmethod
    def of(cls, context: Context, self: Array, shape: Shape, rank: DType) -> _Scratch:
        return cls(*(workspace_like(context, self, shape, dtype) for dtype in (BOOL, rank, rank, INT64, INT64)))


def _grid(w: Windows, tap: Shape) -> tuple[Array, ...]:
    """Per axis, where kernel point `tap` lies in the input, in a shape that broadcasts to (*output)."""
    return np.ix_(*(w.positions(t, axis) for axis, t in enumerate(tap)))


def _find_maxima(taps: _Taps, memory: _Scratch, views: Sequence[Array], best: Array, indices: Array) -> None:
    """As torch's scan: the first place of the maximum inside the input, but the last NaN."""
    np.copyto(best, views[0])
    for view in views[1:]:
        np.maximum(best, view, out=best)
    is_best, rank, winner = memory.is_best, memory.rank, memory.winner
    winner.fill(0)
    for view, ranks in zip(views, taps.ranks, strict=True):
        np.equal(view, best, out=is_best)
        np.multiply(is_best.view(np.uint8), ranks, out=rank)
        np.maximum(winner, rank, out=winner)
    if not winner.all():  # NaN equals nothing
        for number, view in zip(range(len(views), 0, -1), views, strict=True):
            np.copyto(winner, rank.dtype.type(number), where=view != view)
    np.copyto(memory.number, winner)  # an index of another dtype would be converted into new memory
    _look_up(taps.offsets, memory.number, memory.place)
    np.add(memory.place, taps.base, out=indices)


def _look_up(table: Array, numbers: Array, out: Array) -> None:
    """table[numbers], gone through as it lies in memory: both have the dims of one workspace."""
    order = sorted(range(out.ndim), key=lambda axis: -out.strides[axis])
    np.take(table, numbers.transpose(order), out=out.transpose(order), mode="clip")


kernel("aten::max_pool2d_with_indices.out")(partial(_max_pool, 2))
kernel("aten::max_pool3d_with_indices.out")(partial(_max_pool, 3))


# ---- mean -------------------------------------------------------------------------------------------


def _avg_pool(
    rank: int,
    context: Context,
    self: Array,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    out: Array,
) -> BoundCall:
    """Mean of each window: over the divisor, else over all its points, else over those inside the input."""
    check_kind(self.dtype, "if")
    w = windows(rank, self, kernel_size, stride, padding, _DENSE, ceil_mode)
    shape = (*self.shape[:-rank], *w.output)
    out = prepare_out(context, out, self.dtype, shape)
    compute = compute_type(self.dtype)
    mean = StagingBuffer(out, out if out.dtype == compute else workspace_like(context, self, shape, compute))
    padded, pad = pad_call(context, w, self, compute, 0)
    divisor = divisors(w, count_include_pad, divisor_override).astype(compute)
    average = partial(_average, [w.under(padded, tap) for tap in w.taps()], divisor, mean.buffer)
    return staged_call(in_turn(pad, average), [], [mean])


_DENSE: Final = (1,)
"""The dilation of average pooling."""


def divisors(w: Windows, count_include_pad: bool, divisor_override: int | None) -> Array:
    """The divisor of each window's sum: 0-d, or (*output)."""
    if divisor_override == 0:
        raise InvalidArgument("argument 'divisor_override' must not be zero")
    return w.counts(count_include_pad) if divisor_override is None else np.asarray(divisor_override)


def _average(views: Sequence[Array], divisor: Array, out: Array) -> None:
    np.copyto(out, views[0])
    for view in views[1:]:
        np.add(out, view, out)
    if out.dtype.kind == "f":
        np.divide(out, divisor, out)
    else:  # integers are divided towards zero
        np.floor_divide(out - np.fmod(out, divisor), divisor, out)


kernel("aten::avg_pool2d.out")(partial(_avg_pool, 2))
kernel("aten::avg_pool3d.out")(partial(_avg_pool, 3))


@kernel("aten::avg_pool1d.out")
def avg_pool1d(context: Context, self: Array, *window_and_out: Any) -> BoundCall:
    """As of more dims, which have a divisor in front of `out`."""
    *window, out = window_and_out
    return _avg_pool(1, context, self, *(*window, None, out))
