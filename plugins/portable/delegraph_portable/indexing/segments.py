"""Runs of rows -> one row each: reductions of segments that lie one after another, empty ones among them."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import staged_call, staging_buffer
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import (
    check_floating,
    check_index,
    check_one_of,
    compute_type,
)
from delegraph.runtime.numpy_kernels.shapes import wrap_dim

from ..library import kernel, prepare_out

_REDUCTIONS: Final[dict[str, tuple[np.ufunc, float]]] = {
    "sum": (np.add, 0),
    "mean": (np.add, 0),
    "max": (np.maximum, -np.inf),
    "min": (np.minimum, np.inf),
    "prod": (np.multiply, 1),
}
"""Name -> the function of two elements, and its initial value."""


def reduce_runs(ufunc: np.ufunc, rows: Array, lengths: Array, empty: float) -> Array:
    """rows (n, …) in runs of `lengths` (s,), which sum to n -> (s, …); an empty run gives `empty`."""
    result = np.full((lengths.size, *rows.shape[1:]), empty, rows.dtype)
    filled = np.flatnonzero(lengths)
    if filled.size:
        result[filled] = ufunc.reduceat(rows, (np.cumsum(lengths) - lengths)[filled], 0)
    return result


def run_places(starts: Array, lengths: Array) -> Array:
    """The places start, start + 1, … of each run, all after one another."""
    first = np.cumsum(lengths) - lengths
    return np.repeat(starts - first, lengths) + np.arange(int(lengths.sum()))


@kernel("aten::segment_reduce.out")
def segment_reduce(
    context: Context,
    data: Array,
    reduce: str,
    lengths: Array | None,
    indices: Array | None,
    offsets: Array | None,
    axis: int,
    unsafe: bool,
    initial: Scalar | None,
    out: Array,
) -> BoundCall:
    """data (*batch, n, *) in segments along `axis`, the last dim of lengths (*batch, s) or offsets (*batch, s + 1) ->
    (*batch, s, *). The mean of nothing is NaN, or `initial`."""
    check_floating(data, "data")
    check_one_of(reduce, "reduce", tuple(_REDUCTIONS))
    if indices is not None:
        raise InvalidArgument("argument 'indices' must be None: segments are given by 'lengths' or 'offsets'")
    bounds, name = (offsets, "offsets") if offsets is not None else (lengths, "lengths")
    if bounds is None:
        raise InvalidArgument("one of the arguments 'lengths' and 'offsets' must be given")
    check_index(bounds, name)
    axis = wrap_dim(axis, data.ndim, "axis")
    fits = data.ndim > 0 and bounds.ndim == axis + 1 and bounds.shape[:-1] == data.shape[:axis]
    if not fits or (offsets is not None and not bounds.shape[-1]):
        raise InvalidArgument(
            f"argument {name!r} of shape {bounds.shape} does not fit 'data' of shape {data.shape} on axis {axis}"
        )
    segments = bounds.shape[-1] - (offsets is not None)
    out = prepare_out(context, out, data.dtype, (*data.shape[:axis], segments, *data.shape[axis + 1 :]))
    source = staging_buffer(context, data, compute_type(data.dtype))

    def function() -> None:
        starts, counts = _runs_of_offsets(bounds) if offsets is not None else _runs_of_lengths(bounds)
        _check_runs(starts, counts, data.shape[axis], name, whole=offsets is None and not unsafe)
        np.copyto(out, _segments(reduce, source.buffer, starts, counts, axis, initial), casting="unsafe")

    return staged_call(function, [source], [])


def _runs_of_offsets(offsets: Array) -> tuple[Array, Array]:
    offsets = offsets.astype(np.int64, copy=False)
    return offsets[..., :-1], np.diff(offsets)


def _runs_of_lengths(lengths: Array) -> tuple[Array, Array]:
    lengths = lengths.astype(np.int64, copy=False)
    return np.cumsum(lengths, -1) - lengths, lengths


def _check_runs(starts: Array, counts: Array, size: int, name: str, whole: bool) -> None:
    if counts.size and (counts.min() < 0 or starts.min() < 0 or (starts + counts).max() > size):
        raise InvalidArgument(f"argument {name!r} has segments of negative length, or outside of the {size} elements")
    if whole and (counts.sum(-1) != size).any():
        raise InvalidArgument(f"argument {name!r} must sum to {size}, the dimension's size, unless 'unsafe' is set")


def _segments(reduce: str, data: Array, starts: Array, counts: Array, axis: int, initial: Scalar | None) -> Array:
    ufunc, neutral = _REDUCTIONS[reduce]
    size, rest = data.shape[axis], data.shape[axis + 1 :]
    batches = np.arange(math.prod(starts.shape[:-1])).reshape(*starts.shape[:-1], 1)
    lengths = counts.reshape(-1)
    rows = data.reshape(math.prod(data.shape[: axis + 1]), *rest)
    chosen = rows[run_places((starts + batches * size).reshape(-1), lengths)]
    result = reduce_runs(ufunc, chosen, lengths, neutral)
    if initial is not None:
        result = ufunc(result, result.dtype.type(initial))
    if reduce == "mean":
        divisors = lengths if initial is None else np.maximum(lengths, 1)
        result = np.divide(result, divisors.reshape(-1, *(1,) * len(rest)).astype(result.dtype))
    return result.reshape(*counts.shape, *rest)
