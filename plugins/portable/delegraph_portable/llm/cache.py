"""Writing new keys or values into a cache, from a position on or at given places."""

from __future__ import annotations

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_index, check_same_dtype
from delegraph.runtime.numpy_kernels.shapes import check_rank, check_shape

from ..library import kernel

__all__ = ["places", "rows_written"]


@kernel("llama::update_cache.out")
def update_cache(context: Context, value: Array, cache: Array, start_pos: int, out: Array) -> BoundCall:
    """cache (batch, length, heads, size)[:, start_pos: start_pos + new] = value (batch, new, heads, size).

    `out` is one number that nobody reads.
    """
    written = rows_written(value, cache, start_pos)

    def call() -> None:
        written[...] = value
        out[...] = 0

    return call


@kernel("llama::update_cache_with_indices.out")
def update_cache_with_indices(
    context: Context, value: Array, cache: Array, start_pos: int, indices: Array, out: Array
) -> BoundCall:
    """As `update_cache`, but row i of a batch goes to `indices[batch, i]`; negative ones are not written."""
    _check_cache(value, cache)
    check_index(indices, "indices")
    check_shape(indices, value.shape[:2], "indices")
    batches = np.arange(cache.shape[0])[:, None]

    def call() -> None:
        if indices.size and indices.max() >= cache.shape[1]:
            raise InvalidArgument(
                f"argument 'indices' holds {indices.max()}, and the cache has {cache.shape[1]} places"
            )
        kept = indices >= 0
        rows = np.broadcast_to(batches, indices.shape)
        cache[rows[kept], indices[kept]] = value[kept]
        out[...] = 0

    return call


def rows_written(value: Array, cache: Array, start_pos: int) -> Array:
    """The rows of `cache`, from a position on, that `value` goes to. Raises `RuntimeFault` if it does not fit."""
    _check_cache(value, cache)
    return cache[:, places(cache, start_pos, value.shape[1])]


def _check_cache(value: Array, cache: Array) -> None:
    """Raise `RuntimeFault` if `value` is not of the cache's dtype and shape but for its length."""
    check_rank(value, (4,), "value")
    check_rank(cache, (4,), "cache")
    check_same_dtype(value, "value", cache, "cache")
    check_shape(value, (cache.shape[0], value.shape[1], *cache.shape[2:]), "value")


def places(cache: Array, start_pos: int, count: int) -> slice:
    """Where `count` rows go. Raises `InvalidArgument` if they do not fit."""
    if not 0 <= start_pos <= cache.shape[1] - count:
        raise InvalidArgument(f"{count} rows from {start_pos} on do not fit into a cache of {cache.shape[1]}")
    return slice(start_pos, start_pos + count)
