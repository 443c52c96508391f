"""Attention of a few new rows over a cache, as ExecuTorch's `custom_sdpa` has it.

Values are (batch, rows, heads, size), the other way round than torch's; several heads of the query may share one of the
cache. Without a mask a call sees the places before `start_pos` and its own rows, or, `is_causal`, of these the earlier
ones; with a mask (rows, places) it sees all places.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.lazy_dataclass import dataclass
from delegraph.runtime.numpy_kernels.evaluate import copy_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_floating, check_same_dtype, compute_type
from delegraph.runtime.numpy_kernels.shapes import check_rank, check_shape

from ..library import kernel
from .cache import places, rows_written


@kernel("llama::custom_sdpa.out")
def custom_sdpa(
    context: Context,
    query: Array,
    key: Array,
    value: Array,
    start_pos: int,
    attn_mask: Array | None,
    drpout_p: float,
    is_causal: bool,
    scale: float | None,
    out: Array,
) -> BoundCall:
    """query (batch, rows, heads, size); key and value (batch, places, groups of heads, size), which are the caches."""
    check_floating(query, "query")
    for array, name in ((key, "key"), (value, "value")):
        check_same_dtype(array, name, query, "query")
    attend = _attention(query.shape, key, value, start_pos, attn_mask, drpout_p, is_causal, scale)
    out = context.resize(out, query.shape)

    def call() -> None:
        copy_call(out, attend(query, key, value))()

    return call


@kernel("llama::sdpa_with_kv_cache.out")
def sdpa_with_kv_cache(
    context: Context,
    query: Array,
    key: Array,
    value: Array,
    key_cache: Array,
    value_cache: Array,
    start_pos: int,
    seq_len: int,
    *how_and_out: Any,
) -> BoundCall:
    """`update_cache` with `key` and `value`, then `custom_sdpa` over the caches; `seq_len` is the rows' number."""
    of_keys, of_values = rows_written(key, key_cache, start_pos), rows_written(value, value_cache, start_pos)
    if query.ndim == 4 and seq_len != query.shape[1]:
        raise InvalidArgument(f"argument 'seq_len' is {seq_len}, and 'query' has {query.shape[1]} rows")
    attend = custom_sdpa(context, query, key_cache, value_cache, start_pos, *how_and_out)

    def call() -> None:
        of_keys[...] = key
        of_values[...] = value
        attend()

    return call


@kernel("llama::custom_quantized_sdpa.out")
def custom_quantized_sdpa(
    context: Context,
    query: Array,
    key: Array,
    value: Array,
    start_pos: int,
    attn_mask: Array | None,
    drpout_p: float,
    is_causal: bool,
    scale: float | None,
    q_zero_points: Array | None,
    q_scales: Array | None,
    k_zero_points: Array | None,
    k_scales: Array | None,
    v_zero_points: Array | None,
    v_scales: Array | None,
    is_seq_at_dim_2: bool,
    out: Array,
) -> BoundCall:
    """`custom_sdpa` of int8, with a scale and a zero point for each row of a head: (batch, rows, heads, 1).

    is_seq_at_dim_2: all of them are (batch, heads, rows, …).
    """
    if is_seq_at_dim_2:
        query, key, value = (array.swapaxes(1, 2) for array in (query, key, value))
    grids = []
    parameters = (q_scales, q_zero_points), (k_scales, k_zero_points), (v_scales, v_zero_points)
    for array, name, (scales, zeros) in zip((query, key, value), "qkv", parameters, strict=True):
        if array.dtype != np.int8:
            raise InvalidType(f"argument {name!r} must be int8, but is {array.dtype}")
        if scales is None or zeros is None:
            raise InvalidArgument(f"arguments '{name}_scales' and '{name}_zero_points' must be given")
        swapped = (scales.swapaxes(1, 2), zeros.swapaxes(1, 2)) if is_seq_at_dim_2 else (scales, zeros)
        for parameter, kind in zip(swapped, ("scales", "zero_points"), strict=True):
            check_shape(parameter, (*array.shape[:-1], 1), f"{name}_{kind}")
        grids.append(swapped)
    attend = _attention(query.shape, key, value, start_pos, attn_mask, drpout_p, is_causal, scale)
    out = context.resize(out, query.shape if not is_seq_at_dim_2 else query.swapaxes(1, 2).shape)

    def call() -> None:
        reals = (
            (array.astype(np.float32) - zeros) * scales
            for array, (scales, zeros) in zip((query, key, value), grids, strict=True)
        )
        result = attend(*reals)
        copy_call(out, result.swapaxes(1, 2) if is_seq_at_dim_2 else result)()

    return call


@dataclass(frozen=True, slots=True)
class _CachedAttention:
    """So many `places` of the cache are seen; if it is `is_causal`, row i does not see those behind `start_pos + i`."""

    places: int
    start_pos: int
    groups: int
    scale: float
    is_causal: bool
    mask: Array | None

    def __call__(self, query: Array, key: Array, value: Array) -> Array:
        """(batch, rows, heads, size) -> the same, in the dtype that the query is computed in."""
        batch, rows, heads, size = query.shape
        dtype = compute_type(query.dtype)
        shape = (batch, self.groups, heads // self.groups, rows, size)
        q = query.astype(dtype, copy=False).swapaxes(1, 2).reshape(shape)
        k, v = (array[:, : self.places].astype(dtype, copy=False).swapaxes(1, 2)[:, :, None] for array in (key, value))
        scores = (q * dtype.type(self.scale)) @ k.swapaxes(-1, -2)
        if self.is_causal:
            hidden = np.arange(self.places) > self.start_pos + np.arange(rows)[:, None]
            np.copyto(scores, -np.inf, where=hidden)
        if self.mask is not None:
            scores += self.mask
        scores -= scores.max(-1, keepdims=True)  # NaN where everything is hidden, as in ExecuTorch
        np.exp(scores, scores)
        scores /= scores.sum(-1, keepdims=True)
        return np.asarray((scores @ v).reshape(batch, heads, rows, size).swapaxes(1, 2))


def _attention(
    query: tuple[int, ...],
    key: Array,
    value: Array,
    start_pos: int,
    mask: Array | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
) -> _CachedAttention:
    if len(query) != 4:
        raise InvalidArgument(f"argument 'query' has {len(query)} dims, not 4")
    batch, rows, heads, size = query
    check_rank(key, (4,), "key")
    length, groups = key.shape[1:3]
    for array, name in ((key, "key"), (value, "value")):
        check_shape(array, (batch, length, groups, size), name)
    if not groups or heads % groups:
        raise InvalidArgument(f"{heads} heads of the query do not share {groups} of the cache")
    if dropout:
        raise InvalidArgument(f"argument 'drpout_p' is {dropout}, and nothing is dropped when a model runs")
    if mask is not None and is_causal:
        raise InvalidArgument("arguments 'attn_mask' and 'is_causal' exclude each other")
    if mask is not None:
        check_shape(mask, (rows, length), "attn_mask")
    seen = length if mask is not None else places(key, start_pos, rows).stop
    return _CachedAttention(seen, start_pos, groups, 1 / math.sqrt(size) if scale is None else scale, is_causal, mask)
