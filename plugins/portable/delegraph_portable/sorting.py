"""The largest or smallest elements along a dim."""

from __future__ import annotations

from functools import partial

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.runtime.kernels import BoundCall

from .library import Array, Context, kernel
from .promotion import check_result, compute_type
from .shapes import wrap_dim


@kernel("aten::topk.values")
def topk(
    context: Context, self: Array, k: int, dim: int, largest: bool, sorted: bool, values: Array, indices: Array
) -> BoundCall:
    """The `k` first along `dim` in order (also where `sorted` is false); NaN counts as the largest."""
    axis = wrap_dim(dim, self.ndim)
    source = self.reshape(1) if self.ndim == 0 else self
    if not 0 <= k <= source.shape[axis]:
        raise InvalidArgument(f"argument 'k' is {k}, but dimension {dim} has size {source.shape[axis]}")
    check_result(self.dtype, values)
    shape = (*self.shape[:axis], k, *self.shape[axis + 1 :]) if self.ndim else ()
    return partial(_topk, self, k, axis, largest, context.resize(values, shape), context.resize(indices, shape))


def _topk(x: Array, k: int, axis: int, largest: bool, values: Array, indices: Array) -> None:
    x = np.atleast_1d(x).astype(compute_type(x.dtype), copy=False)
    places = _smallest(x, k, axis) if not largest else _largest(x, k, axis)
    indices[...] = places.reshape(indices.shape)
    np.copyto(values, np.take_along_axis(x, places, axis).reshape(values.shape), casting="unsafe")


def _smallest(x: Array, k: int, axis: int) -> Array:
    """Indices of the `k` smallest, in order; of equal ones the first."""
    size = x.shape[axis]
    if 0 < k < size // 8:  # so few that choosing them first pays
        chosen = np.sort(np.take(np.argpartition(x, k - 1, axis), range(k), axis), axis)
    else:
        chosen = np.broadcast_to(np.arange(size).reshape(-1, *(1,) * (x.ndim - 1 - axis)), x.shape)
    order = np.argsort(np.take_along_axis(x, chosen, axis), axis, kind="stable")
    return np.take(np.take_along_axis(chosen, order, axis), range(k), axis)


def _largest(x: Array, k: int, axis: int) -> Array:
    """Indices of the `k` largest, in order."""
    size = x.shape[axis]
    if 0 < k < size // 8:
        chosen = np.sort(np.take(np.argpartition(x, size - k, axis), range(size - k, size), axis), axis)
    else:
        chosen = np.broadcast_to(np.arange(size).reshape(-1, *(1,) * (x.ndim - 1 - axis)), x.shape)
    # Stable in the reversed order, so that of equal ones the first comes first once all is turned around.
    chosen = np.flip(chosen, axis)
    order = np.flip(np.argsort(np.take_along_axis(x, chosen, axis), axis, kind="stable"), axis)
    return np.take(np.take_along_axis(chosen, order, axis), range(k), axis)
