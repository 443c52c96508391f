"""Pooling over windows of two spatial dims."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.runtime.kernels import BoundCall

from .evaluate import function_call, stage, staged_call
from .library import Array, Context, kernel
from .promotion import check_floating, check_result, compute_type
from .shapes import Shape, check_rank, per_dim, trailing

Pair = Sequence[int]


@dataclass(frozen=True, slots=True)
class Windows:
    """Where the windows of one pooling lie; pairs are (height, width)."""

    input: Shape
    output: Shape
    kernel: Shape
    stride: Shape
    padding: Shape
    dilation: Shape

    @property
    def reach(self) -> Shape:
        """Size of a padded input that every window lies in."""
        return tuple(
            max((n - 1) * s + d * (k - 1) + 1, size + p)
            for n, s, d, k, size, p in zip(
                self.output, self.stride, self.dilation, self.kernel, self.input, self.padding, strict=True
            )
        )

    def taps(self) -> Iterator[Shape]:
        return product(*map(range, self.kernel))

    def positions(self, tap: Shape, axis: int) -> Array:
        """Input coordinate, along `axis`, of kernel point `tap` in each window; negative in the padding."""
        start = tap[axis] * self.dilation[axis] - self.padding[axis]
        return start + self.stride[axis] * np.arange(self.output[axis])

    def under(self, padded: Array, tap: Shape) -> Array:
        """The view of `padded` (*, *reach) that kernel point `tap` sees: (*, *output)."""
        slices = (
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, self.dilation, self.output, self.stride, strict=True)
        )
        return padded[trailing(slices)]

    def inside(self, padded: Array) -> Array:
        """The view of `padded` (*, *reach) where the input lies: (*, *input)."""
        (top, left), (height, width) = self.padding, self.input
        return padded[..., top : top + height, left : left + width]


def _output_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-span // stride) if ceil_mode else span // stride) + 1
    # The last window must start inside the input or its leading padding.
    return count - 1 if ceil_mode and (count - 1) * stride >= size + padding else count


def _windows(self: Array, kernel: Pair, stride: Pair, padding: Pair, dilation: Pair, ceil_mode: bool) -> Windows:
    check_rank(self, (3, 4), "self")
    size = per_dim(kernel, 2, "kernel_size")
    steps = per_dim(stride, 2, "stride") if stride else size
    pads = per_dim(padding, 2, "padding")
    spread = per_dim(dilation, 2, "dilation")
    if min(*size, *steps, *spread) < 1:
        raise InvalidArgument("arguments 'kernel_size', 'stride' and 'dilation' must be positive")
    if any(not 0 <= p <= k // 2 for p, k in zip(pads, size, strict=True)):
        raise InvalidArgument(f"argument 'padding' {pads} must be between 0 and half of the kernel {size}")
    output = tuple(
        _output_size(*sizes, ceil_mode) for sizes in zip(self.shape[-2:], size, steps, pads, spread, strict=True)
    )
    if min(output) < 1 or 0 in self.shape[-3:]:
        raise InvalidArgument(f"argument 'self' of shape {self.shape} is smaller than the window {size}")
    return Windows(self.shape[-2:], output, size, steps, pads, spread)


# ---- maximum ----------------------------------------------------------------------------------------


@kernel("aten::max_pool2d_with_indices.out")
def max_pool2d(
    context: Context,
    self: Array,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    ceil_mode: bool,
    out: Array,
    indices: Array,
) -> BoundCall:
    """Maximum of each window, and its index in the flattened (H, W) plane; NaN wins."""
    check_result(self.dtype, out)
    w = _windows(self, kernel_size, stride, padding, dilation, ceil_mode)
    shape = (*self.shape[:-2], *w.output)
    out, indices = context.resize(out, shape), context.resize(indices, shape)
    compute = compute_type(self.dtype)
    best = stage(context, out, compute)
    padded = context.workspace((*self.shape[:-2], *w.reach), compute)
    inner = w.inside(padded)
    views = [w.under(padded, tap) for tap in w.taps()]
    lowest = -math.inf if compute.kind == "f" else np.iinfo(compute).min
    winner = partial(_find_winners, _Winners.of(context, w, shape), views, best.buffer, indices)

    def call() -> None:
        padded.fill(lowest)
        np.copyto(inner, self, casting="unsafe")
        np.copyto(best.buffer, views[0])
        for view in views[1:]:
            np.maximum(best.buffer, view, out=best.buffer)
        winner()

    return staged_call(call, [], [best])


@dataclass(frozen=True, slots=True)
class _Winners:
    """How to find which kernel tap each maximum came from: taps are numbered downwards, so the first has the largest.

    `ranks` (taps, *output): each tap's number where it lies in the input, 0 in the padding. `offsets`: number -> what
    the tap adds to `base` (*output), the index of each window's start in the plane.
    """

    ranks: Array
    offsets: Array
    base: Array
    rank: Array
    winner: Array
    place: Array

    @classmethod
    def of(cls, context: Context, w: Windows, shape: Shape) -> _Winners:
        taps = list(w.taps())
        dtype = np.min_scalar_type(len(taps))
        ranks = np.empty((len(taps), *w.output), dtype)
        offsets = np.zeros(len(taps) + 1, np.int64)
        for number, tap, inside in zip(range(len(taps), 0, -1), taps, ranks, strict=True):
            rows, columns = w.positions(tap, 0)[:, None], w.positions(tap, 1)
            within = (rows >= 0) & (rows < w.input[0]) & (columns >= 0) & (columns < w.input[1])
            np.multiply(within, number, out=inside, casting="unsafe")
            offsets[number] = tap[0] * w.dilation[0] * w.input[1] + tap[1] * w.dilation[1]
        base = w.positions((0, 0), 0)[:, None] * w.input[1] + w.positions((0, 0), 1)
        rank, winner = context.workspace(shape, dtype), context.workspace(shape, dtype)
        return cls(ranks, offsets, base, rank, winner, context.workspace(shape, offsets.dtype))


def _find_winners(w: _Winners, views: Sequence[Array], best: Array, indices: Array) -> None:
    """As torch's scan: the first place of the maximum inside the input, but the last NaN."""
    w.winner.fill(0)
    for view, ranks in zip(views, w.ranks, strict=True):
        np.equal(view, best, out=w.rank, casting="unsafe")
        np.multiply(w.rank, ranks, out=w.rank)
        np.maximum(w.winner, w.rank, out=w.winner)
    if not w.winner.all():  # NaN equals nothing
        for number, view in zip(range(len(views), 0, -1), views, strict=True):
            np.copyto(w.winner, w.rank.dtype.type(number), where=view != view)
    np.take(w.offsets, w.winner, out=w.place, mode="clip")
    np.add(w.place, w.base, out=indices)


@kernel("aten::max_pool2d_with_indices_backward.grad_input")
def max_pool2d_backward(
    context: Context,
    grad_output: Array,
    self: Array,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    ceil_mode: bool,
    indices: Array,
    grad_input: Array,
) -> BoundCall:
    """Each gradient is added to the input that was the maximum."""
    check_result(self.dtype, grad_input)
    grad_input = context.resize(grad_input, self.shape)

    def call() -> None:
        height, width = self.shape[-2:]
        planes = math.prod(self.shape[:-2])
        places = indices.reshape(planes, -1)
        if places.size and (places.min() < 0 or places.max() >= height * width):
            raise InvalidArgument(f"argument 'indices' points outside of planes of {height * width} elements")
        total = np.zeros((planes, height * width), compute_type(self.dtype))
        np.add.at(total, (np.arange(planes)[:, None], places), grad_output.reshape(planes, -1).astype(total.dtype))
        np.copyto(grad_input, total.reshape(self.shape), casting="unsafe")

    return call


# ---- average ----------------------------------------------------------------------------------------


@kernel("aten::avg_pool2d.out")
def avg_pool2d(
    context: Context,
    self: Array,
    kernel_size: Pair,
    stride: Pair,
    padding: Pair,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
    out: Array,
) -> BoundCall:
    """Mean of each window: over the divisor, else over all its points, else over those inside the input."""
    check_result(self.dtype, out)
    if divisor_override == 0:
        raise InvalidArgument("argument 'divisor_override' must not be zero")
    w = _windows(self, kernel_size, stride, padding, (1, 1), ceil_mode)
    out = context.resize(out, (*self.shape[:-2], *w.output))
    divisor = np.asarray(divisor_override) if divisor_override is not None else _counts(w, count_include_pad)
    compute = compute_type(self.dtype)
    return function_call(context, partial(_avg_pool, w, divisor.astype(compute)), (self,), out, compute)


def _counts(w: Windows, include_pad: bool) -> Array:
    """(*output): points of each window that lie in the input, or in the input and its padding."""
    per_axis = []
    for axis in (0, 1):
        margin = w.padding[axis] if include_pad else 0
        first = w.positions((0, 0), axis)
        start = np.maximum(first, -margin)
        end = np.minimum(first + w.kernel[axis], w.input[axis] + margin)
        per_axis.append(end - start)
    counts: Array = per_axis[0][:, None] * per_axis[1]
    return counts


def _avg_pool(w: Windows, divisor: Array, x: Array, out: Array) -> None:
    padded = x
    if w.reach != w.input:
        padded = np.zeros((*x.shape[:-2], *w.reach), x.dtype)
        w.inside(padded)[...] = x
    first, *rest = w.taps()
    np.copyto(out, w.under(padded, first))
    for tap in rest:
        np.add(out, w.under(padded, tap), out)
    if out.dtype.kind == "f":
        np.divide(out, divisor, out)
    else:  # integers are divided towards zero
        np.floor_divide(out - np.fmod(out, divisor), divisor, out)


@kernel("aten::_adaptive_avg_pool2d.out")
def adaptive_avg_pool2d(context: Context, self: Array, output_size: Pair, out: Array) -> BoundCall:
    """Bin i of n over `size` inputs holds those from ⌊i size/n⌋ to ⌈(i+1) size/n⌉."""
    check_rank(self, (3, 4), "self")
    check_floating(self, "self")
    check_result(self.dtype, out)
    size = per_dim(output_size, 2, "output_size")
    if 0 in self.shape[-3:]:
        raise InvalidArgument(f"argument 'self' of shape {self.shape} has nothing to average")
    out = context.resize(out, (*self.shape[:-2], *size))
    return function_call(context, _adaptive_avg_pool, (self,), out, compute_type(self.dtype))


def _bins(size: int, count: int) -> list[slice]:
    return [slice(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


def _adaptive_avg_pool(x: Array, out: Array) -> None:
    rows, columns = _bins(x.shape[-2], out.shape[-2]), _bins(x.shape[-1], out.shape[-1])
    for i, row in enumerate(rows):
        strip = x[..., row, :]
        for j, column in enumerate(columns):
            np.mean(strip[..., column], (-2, -1), out=out[..., i, j])
