"""Numbers -> how many fall into each bin, or how often each occurs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall, KernelContext
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import (
    FLOAT64,
    check_floating,
    check_index,
    check_same_dtype,
    compute_type,
)
from delegraph.runtime.numpy_kernels.shapes import check_rank, check_shape

from ..library import data_dependent, in_turn, kernel

Edges = Callable[[Array], list[Array]]
"""(n, d) points -> for each coordinate the ascending edges of its bins."""

# ---- bins of equal width ----------------------------------------------------------------------------


@kernel("aten::histc.out")
def histc(context: Context, self: Array, bins: int, min: Scalar, max: Scalar, out: Array) -> BoundCall:
    """Counts in `bins` of equal width from `min` to `max`, or over the range of the elements where those are equal."""
    check_floating(self, "self")
    check_floating(out, "out")
    _check_bins([bins])
    assert not isinstance(min, complex) and not isinstance(max, complex)
    if min > max:
        raise InvalidArgument(f"argument 'max' is {max}, but must be larger than 'min', which is {min}")
    return partial(_count_evenly, self, bins, min, max, context.resize(out, (bins,)))


def _count_evenly(self: Array, bins: int, low: float, high: float, out: Array) -> None:
    x = self.reshape(-1).astype(compute_type(self.dtype), copy=False)
    if low == high and x.size:
        low, high = float(x.min()), float(x.max())
    if low == high:
        low, high = low - 1, high + 1
    if not np.isfinite([low, high]).all():
        raise InvalidArgument(f"argument 'self' spans [{low}, {high}], which no bins divide; give 'min' and 'max'")
    # In the dtype of `x`, as in torch: in float64 an element beside an edge could fall into the other bin.
    start, end = x.dtype.type(low), x.dtype.type(high)
    inside = x[(x >= start) & (x <= end)]
    places = ((inside - start) * x.dtype.type(bins) / (end - start)).astype(np.int64)
    out[...] = np.bincount(np.minimum(places, bins - 1), minlength=bins)  # the last bin has its end, too


# ---- bins with edges, in any number of dims ---------------------------------------------------------


@kernel("aten::histogram.bin_ct_out")
def histogram(
    context: Context,
    self: Array,
    bins: int,
    range: Sequence[float] | None,
    weight: Array | None,
    density: bool,
    hist: Array,
    bin_edges: Array,
) -> BoundCall:
    """Counts in `bins` of equal width, and their edges. The last bin has its end, too."""
    bin_edges = context.resize(bin_edges, (bins + 1,))
    edges = _even_edges([bins], range)
    count = _histogram(context, self, self.size, edges, (bins,), weight, density, hist)

    def call() -> None:
        np.copyto(bin_edges, edges(_points(self, 1))[0], casting="unsafe")
        count()

    return call


@kernel("aten::histogram.bins_tensor_out")
def histogram_between(
    context: Context, self: Array, bins: Array, weight: Array | None, density: bool, hist: Array, bin_edges: Array
) -> BoundCall:
    """Counts between the ascending edges `bins`."""
    count = _histogram_between(context, self, self.size, [bins], weight, density, hist)
    bin_edges = context.resize(bin_edges, bins.shape)
    return in_turn(partial(np.copyto, bin_edges, bins, casting="unsafe"), count)


@kernel("aten::_histogramdd_from_bin_tensors.out")
def histogram_between_points(
    context: Context, self: Array, bins: Sequence[Array], weight: Array | None, density: bool, out: Array
) -> BoundCall:
    """self (*, d), d edges (b + 1,) -> counts (b, …)."""
    _check_points(self, len(bins))
    return _histogram_between(context, self, self.size // max(len(bins), 1), bins, weight, density, out)


def _histogram_between(
    context: Context, self: Array, count: int, bins: Sequence[Array], weight: Array | None, density: bool, out: Array
) -> BoundCall:
    for edges in bins:
        check_rank(edges, (1,), "bins")
        check_same_dtype(edges, "bins", self, "self")
        if edges.size < 2:
            raise InvalidArgument(f"argument 'bins' must hold at least 2 edges, but has shape {edges.shape}")
    shape = tuple(edges.size - 1 for edges in bins)
    return _histogram(
        context, self, count, lambda points: [e.astype(points.dtype) for e in bins], shape, weight, density, out
    )


@kernel("aten::_histogramdd_from_bin_cts.out")
def histogram_of_points(
    context: Context,
    self: Array,
    bins: Sequence[int],
    range: Sequence[float] | None,
    weight: Array | None,
    density: bool,
    out: Array,
) -> BoundCall:
    """self (*, d) -> counts (b, …) in `bins` of equal width for each coordinate."""
    _check_points(self, len(bins))
    edges = _even_edges(bins, range)
    return _histogram(context, self, self.size // max(len(bins), 1), edges, tuple(bins), weight, density, out)


@kernel("aten::_histogramdd_bin_edges.out")
def histogram_edges(
    context: Context,
    self: Array,
    bins: Sequence[int],
    range: Sequence[float] | None,
    weight: Array | None,
    density: bool,
    out: Sequence[Array],
) -> BoundCall:
    """The edges that `histogram_of_points` counts between."""
    check_floating(self, "self")
    _check_points(self, len(bins))
    edges = _even_edges(bins, range)
    results = [context.resize(o, (b + 1,)) for o, b in zip(out, bins, strict=True)]

    def call() -> None:
        for result, values in zip(results, edges(_points(self, len(bins))), strict=True):
            np.copyto(result, values, casting="unsafe")

    return call


def _check_bins(bins: Sequence[int]) -> None:
    if not bins or any(b < 1 for b in bins):
        raise InvalidArgument(f"argument 'bins' must be positive, but is {bins[0] if len(bins) == 1 else list(bins)}")


def _check_points(self: Array, dims: int) -> None:
    """Raise `InvalidArgument` unless `self` has shape (*, dims)."""
    if self.ndim < 2 or self.shape[-1] != dims:
        raise InvalidArgument(f"argument 'self' of shape {self.shape} has no {dims} coordinates for each point")


def _points(self: Array, dims: int) -> Array:
    return self.reshape(self.size // dims, dims).astype(compute_type(self.dtype), copy=False)


def _even_edges(bins: Sequence[int], bounds: Sequence[float] | None) -> Edges:
    """`bounds`: low and high of each coordinate; None: the range of its values, widened where that is one number."""
    _check_bins(bins)
    if bounds is not None and len(bounds) != 2 * len(bins):
        raise InvalidArgument(f"argument 'range' must have {2 * len(bins)} values, but is {list(bounds)}")

    def edges(points: Array) -> list[Array]:
        return [_linspace(*_span(points, d, bounds), b, points) for d, b in enumerate(bins)]

    return edges


def _span(points: Array, d: int, bounds: Sequence[float] | None) -> tuple[float, float]:
    low, high = 0.0, 1.0
    if bounds is not None:
        low, high = bounds[2 * d], bounds[2 * d + 1]
    elif len(points):
        low, high = float(points[:, d].min()), float(points[:, d].max())
    if not (np.isfinite([low, high]).all() and low <= high):
        raise InvalidArgument(f"arguments 'self' and 'range' give the range [{low}, {high}], which no bins divide")
    return (low - 0.5, high + 0.5) if low == high else (low, high)


def _linspace(low: float, high: float, bins: int, points: Array) -> Array:
    """As torch.linspace: from either end to the middle."""
    start, end = points.dtype.type(low), points.dtype.type(high)
    step = (end - start) / points.dtype.type(bins)
    numbers = np.arange(bins + 1, dtype=points.dtype)
    edges: Array = np.where(numbers < (bins + 1) // 2, start + step * numbers, end - step * numbers[::-1])
    return edges


def _histogram(
    context: Context,
    self: Array,
    count: int,
    edges: Edges,
    shape: tuple[int, ...],
    weight: Array | None,
    density: bool,
    out: Array,
) -> BoundCall:
    check_floating(self, "self")
    check_same_dtype(out, "hist", self, "self")
    if self.size != count * len(shape) or not shape:
        raise InvalidArgument(f"argument 'self' of shape {self.shape} has no {len(shape)} coordinates for each point")
    if weight is not None:
        check_same_dtype(weight, "weight", self, "self")
        if weight.size != count:
            raise InvalidArgument(f"argument 'weight' has {weight.size} elements, but argument 'self' {count} points")
    out = context.resize(out, shape)

    def call() -> None:
        points = _points(self, len(shape))
        bounds = edges(points)
        weights = None if weight is None else weight.reshape(-1).astype(FLOAT64, copy=False)
        counts = _count(points, bounds, shape, weights)
        if density:
            counts = counts / counts.sum()
            for d, b in enumerate(bounds):
                counts = counts / np.diff(b.astype(FLOAT64)).reshape(-1, *(1,) * (len(shape) - 1 - d))
        np.copyto(out, counts, casting="unsafe")

    return call


def _count(points: Array, edges: Sequence[Array], shape: tuple[int, ...], weights: Array | None) -> Array:
    inside = np.ones(len(points), np.bool_)
    flat = np.zeros(len(points), np.int64)
    for d, (bounds, bins) in enumerate(zip(edges, shape, strict=True)):
        x = points[:, d]
        inside &= (x >= bounds[0]) & (x <= bounds[-1])
        flat = flat * bins + np.minimum(np.searchsorted(bounds, x, "right") - 1, bins - 1)
    chosen = None if weights is None else weights[inside]
    return np.bincount(flat[inside], chosen, int(np.prod(shape))).reshape(shape)


# ---- integers ---------------------------------------------------------------------------------------


@data_dependent("aten::bincount.out")
def bincount(context: KernelContext, self: Array, weights: Array | None, minlength: int, out: Array) -> None:
    """How often each integer from 0 occurs in self (n,), or the sum of its weights; at least `minlength` numbers."""
    check_index(self, "self")
    check_rank(self, (1,), "self")
    if minlength < 0:
        raise InvalidArgument(f"argument 'minlength' must not be negative, but is {minlength}")
    if weights is not None:
        check_shape(weights, self.shape, "weights")
    if self.size and int(self.min()) < 0:
        raise InvalidArgument(f"argument 'self' holds {self.min()}, but only numbers from 0 are counted")
    numbers = self.astype(np.int64, copy=False)
    counts = np.bincount(numbers, None if weights is None else weights.astype(FLOAT64, copy=False), minlength)
    np.copyto(context.resize(out, counts.shape), counts, casting="unsafe")
