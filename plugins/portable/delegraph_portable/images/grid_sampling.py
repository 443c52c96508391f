"""Images and volumes sampled at places that a grid gives (`ATen/native/GridSampler.h`).

A pixel is a unit square and its sample lies in the middle; -1 and 1 are the outer edges of the image, or the middles of
its corner pixels with `align_corners`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import product
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.lazy_dataclass import dataclass
from delegraph.runtime.numpy_kernels.evaluate import function_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import (
    check_floating,
    check_one_of,
    check_same_dtype,
    compute_type,
)
from delegraph.runtime.numpy_kernels.shapes import Index, check_rank

from ..library import kernel, prepare_out
from .interpolation import cubic_weights

_BILINEAR, _NEAREST, _BICUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)
_OUTSIDE: Final = -100
"""A coordinate that is in no image. As in torch, volumes have zeros at NaN and infinity, but images NaN."""


def _grid_sampler(
    rank: int,
    modes: tuple[int, ...],
    context: Context,
    input: Array,
    grid: Array,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    out: Array,
) -> BoundCall:
    """input (N, C, H, W) at grid (N, h, w, 2) of (x, y) in -1 … 1 -> (N, C, h, w); in three dims (x, y, z)."""
    check_one_of(interpolation_mode, "interpolation_mode", modes)
    check_one_of(padding_mode, "padding_mode", (_ZEROS, _BORDER, _REFLECTION))
    check_rank(input, (rank + 2,), "input")
    check_floating(input, "input")
    check_same_dtype(grid, "grid", input, "input")
    if grid.ndim != rank + 2 or grid.shape[0] != input.shape[0] or grid.shape[-1] != rank:
        raise InvalidArgument(f"argument 'grid' of shape {grid.shape} does not fit argument 'input' {input.shape}")
    if 0 in input.shape[1:]:
        raise InvalidArgument(f"argument 'input' of shape {input.shape} has nothing to sample")
    out = prepare_out(context, out, input.dtype, (*input.shape[:2], *grid.shape[1:-1]))
    function = partial(_SAMPLERS[interpolation_mode], _Folding(rank, padding_mode, align_corners))
    return function_call(context, function, (input, grid), out, compute_type(input.dtype))


kernel("aten::grid_sampler_2d.out")(partial(_grid_sampler, 2, (_BILINEAR, _NEAREST, _BICUBIC)))
kernel("aten::grid_sampler_3d.out")(partial(_grid_sampler, 3, (_BILINEAR, _NEAREST)))


@dataclass(frozen=True, slots=True)
class _Folding:
    """From a grid to coordinates in pixels; those outside of the image are moved into it, or left for zero padding."""

    rank: int
    padding_mode: int
    align_corners: bool

    def coordinates(self, grid: Array, sizes: Sequence[int]) -> list[Array]:
        """One array (N, *output) per spatial dim, the first dim first; the grid has the last first."""
        # -1 and 1 are the centers of the outer pixels if corners are aligned, else the outer edges of these.
        return [
            (g + 1) / 2 * (size - 1) if self.align_corners else ((g + 1) * size - 1) / 2
            for g, size in zip(np.moveaxis(grid, -1, 0)[::-1], sizes, strict=True)
        ]

    def fold(self, at: Array, size: int) -> Array:
        if self.padding_mode == _REFLECTION:
            at = _reflect(at, 0, size - 1) if self.align_corners else _reflect(at, -0.5, size - 0.5)
        # A reflected coordinate may lie half a pixel outside, so it is clipped, too; NaN goes where torch has it.
        if self.padding_mode != _ZEROS:
            return np.clip(np.where(np.isnan(at), 0 if self.rank == 2 else size - 1, at), 0, size - 1)
        return at if self.rank == 2 else np.where(np.isfinite(at), at, _OUTSIDE)

    def folded(self, grid: Array, sizes: Sequence[int]) -> list[Array]:
        return [self.fold(at, n) for at, n in zip(self.coordinates(grid, sizes), sizes, strict=True)]


def _reflect(at: Array, low: float, high: float) -> Array:
    span = high - low
    if span == 0:
        return np.zeros_like(at)
    distance = np.abs(at - low)
    # Folded once per span: after an even number of folds the direction is the first one again.
    flips, rest = np.floor(distance / span), np.fmod(distance, span)
    return np.where(flips % 2 == 0, rest + low, high - rest).astype(at.dtype)


def _pixels(x: Array, places: Sequence[Array]) -> Array:
    """x (N, C, *spatial) at integer-valued places (N, *output), one array per dim -> (N, C, *output); 0 outside."""
    inside = reduce(np.logical_and, ((at >= 0) & (at < n) for at, n in zip(places, x.shape[2:], strict=True)))
    indices = [np.where(inside, at, 0).astype(np.int64) for at in places]
    images = np.arange(x.shape[0]).reshape(-1, *(1,) * (x.ndim - 2))
    everywhere: Index = (images, slice(None), *indices)
    values = np.moveaxis(x[everywhere], -1, 1)  # indices with a slice between them put the channels last
    return np.where(inside[:, None], values, x.dtype.type(0))


def _sample_nearest(folding: _Folding, x: Array, grid: Array, out: Array) -> None:
    np.copyto(out, _pixels(x, [np.rint(at) for at in folding.folded(grid, x.shape[2:])]))


def _sample_linear(folding: _Folding, x: Array, grid: Array, out: Array) -> None:
    corners = []
    for at in folding.folded(grid, x.shape[2:]):
        first = np.floor(at)
        corners.append(((first, 1 - (at - first)), (first + 1, at - first)))
    _weigh_neighbours(x, corners, out)


def _sample_cubic(folding: _Folding, x: Array, grid: Array, out: Array) -> None:
    neighbours = []
    for at, size in zip(folding.coordinates(grid, x.shape[2:]), x.shape[2:], strict=True):
        first = np.floor(at)
        weights = cubic_weights(at - first)
        # Each of the four neighbours is folded by itself, as in torch, not the coordinate between them.
        neighbours.append([(np.rint(folding.fold(first + k - 1, size)), w) for k, w in enumerate(weights)])
    _weigh_neighbours(x, neighbours, out)


def _weigh_neighbours(x: Array, neighbours: Sequence[Sequence[tuple[Array, Array]]], out: Array) -> None:
    """`neighbours`: per spatial dim, (place, weight) of each sample that counts."""
    out.fill(0)
    for corner in product(*neighbours):
        places, weights = zip(*corner, strict=True)
        out += _pixels(x, places) * reduce(np.multiply, weights)[:, None]


_SAMPLERS: Final[dict[int, Callable[[_Folding, Array, Array, Array], None]]] = {
    _BILINEAR: _sample_linear,
    _NEAREST: _sample_nearest,
    _BICUBIC: _sample_cubic,
}
