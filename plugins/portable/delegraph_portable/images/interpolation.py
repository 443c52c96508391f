"""Sizes and scales of an image -> the filter taps that resize it along one axis.

The conventions are torch's (`ATen/native/UpSample.h`): a pixel is a unit square and its sample lies in the middle,
unless `align_corners` makes the corner samples of input and output coincide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from delegraph.lazy_dataclass import dataclass, replace
from delegraph.runtime.numpy_kernels.prepared import Array
from delegraph.runtime.numpy_kernels.promotion import FLOAT32, DType

Taps = tuple[Array, Array]
"""Along one axis: input places (K, out) and their weights (K, out); an output is the weighted sum of K inputs."""


@dataclass(frozen=True, slots=True)
class ResizedAxis:
    """One axis: from `size` samples to `count`. `factor` overrides their ratio as the scale."""

    size: int
    count: int
    factor: float | None
    align_corners: bool = False

    def step(self, dtype: DType) -> np.floating[Any]:
        """Distance between the input coordinates of neighbouring outputs."""
        real = dtype.type
        if self.align_corners:
            step = real(self.size - 1) / real(self.count - 1) if self.count > 1 else real(0)
        else:
            step = real(1 / self.factor) if self.factor else real(self.size) / real(self.count)
        return cast("np.floating[Any]", step)

    def centers(self, dtype: DType) -> Array:
        """Input coordinates of the outputs; outside of the image at its borders."""
        outputs = np.arange(self.count, dtype=dtype)
        half, step = dtype.type(0.5), self.step(dtype)
        centers: Array = outputs * step if self.align_corners else (outputs + half) * step - half
        return centers


# ---- nearest ----------------------------------------------------------------------------------------


def nearest(r: ResizedAxis) -> Array:
    """The input place of each output: below its left edge."""
    return _places(np.arange(r.count, dtype=FLOAT32) * r.step(FLOAT32), r)


def nearest_of_image(r: ResizedAxis) -> Array:
    """As `nearest`, but that an image of the same size, or twice as large, is one whatever the factor."""
    return nearest(replace(r, factor=None) if r.count in (r.size, 2 * r.size) else r)


def nearest_exact(r: ResizedAxis) -> Array:
    """The input place of each output: below its middle. Rounded once, as processors multiply and add."""
    middles = (np.arange(r.count) + 0.5) * np.float64(r.step(FLOAT32)) - 0.5
    return _places(middles.astype(FLOAT32) + FLOAT32.type(0.5), r)


def nearest_exact_of_image(r: ResizedAxis) -> Array:
    """As `nearest_exact`, of which torch's kernel of images rounds the product alone."""
    return _places((np.arange(r.count, dtype=FLOAT32) + FLOAT32.type(0.5)) * r.step(FLOAT32), r)


def _places(at: Array, r: ResizedAxis) -> Array:
    places: Array = np.minimum(np.floor(at).astype(np.int64), r.size - 1)
    return places


# ---- interpolation ----------------------------------------------------------------------------------


def copied_if_as_large(r: ResizedAxis) -> ResizedAxis:
    """Without a factor that contradicts equal sizes: torch copies then, but for `cubic_taps`."""
    return replace(r, factor=None) if r.count == r.size else r


def linear_taps(r: ResizedAxis, dtype: DType) -> Taps:
    r = copied_if_as_large(r)
    at = np.maximum(r.centers(dtype), 0)
    first = np.minimum(at.astype(np.int64), r.size - 1)
    second = np.minimum(first + 1, r.size - 1)
    weight = np.clip(at - first, 0, 1).astype(dtype)
    return np.stack((first, second)), np.stack((1 - weight, weight))


def cubic_taps(r: ResizedAxis, dtype: DType) -> Taps:
    at = r.centers(dtype)
    first = np.floor(at)
    weights = np.stack(cubic_weights((at - first).astype(dtype)))
    places = first.astype(np.int64) + np.arange(-1, 3)[:, None]
    return np.clip(places, 0, r.size - 1), weights


def cubic_weights(t: Array) -> list[Array]:
    """Weights of the four neighbours of a point `t` behind the second, by `keys_cubic` with a = -0.75."""
    return [keys_cubic(d, -0.75) for d in (t + 1, t, 1 - t, 2 - t)]


def keys_cubic(d: Array, a: float) -> Array:
    """The kernel of cubic convolution at distances `d` >= 0 (R. Keys, 1981): 1 at 0, and 0 from 2 on."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    weights: Array = np.where(d <= 1, near, np.where(d >= 2, 0, far)).astype(d.dtype)
    return weights


# ---- interpolation of a smoothed image --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter of weights at distances from its middle, 0 beyond `radius`."""

    radius: int
    weights: Callable[[Array], Array]


TRIANGLE = Filter(1, lambda d: np.maximum(1 - d, 0))
CUBIC = Filter(2, lambda d: keys_cubic(d, -0.5))
LANCZOS = Filter(3, lambda d: np.where(d < 3, np.sinc(d) * np.sinc(d / 3), 0))


def antialiased_taps(filter: Filter, r: ResizedAxis, dtype: DType) -> Taps:
    """Where the image shrinks, the filter is widened by as much."""
    r = copied_if_as_large(r)
    step = r.step(dtype)
    widening = max(step, dtype.type(1))
    support = filter.radius * widening
    half = dtype.type(0.5)
    centers = (np.arange(r.count, dtype=dtype) + half) * step
    first = np.maximum((centers - support + half).astype(np.int64), 0)
    end = np.minimum((centers + support + half).astype(np.int64), r.size)
    places = first + np.arange(max(int((end - first).max()), 1))[:, None]
    distances = np.abs((places.astype(dtype) - centers + half) * (1 / widening))
    weights = np.where(places < end, filter.weights(distances), 0)
    total = weights.sum(0)  # 0 where a step that contradicts the sizes leads out of the image
    return np.minimum(places, r.size - 1), (weights / np.where(total == 0, 1, total)).astype(dtype)
