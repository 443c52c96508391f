"""Numbers -> their places among sorted boundaries."""

from __future__ import annotations

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import check_index, check_one_of, compute_type, is_complex, result_type
from delegraph.runtime.numpy_kernels.shapes import check_rank, check_shape

from ..library import kernel


@kernel("aten::searchsorted.Tensor_out", "aten::searchsorted.Scalar_out")
def searchsorted(
    context: Context,
    sorted_sequence: Array,
    self: Array | Scalar,
    out_int32: bool,
    right: bool,
    side: str | None,
    sorter: Array | None,
    out: Array,
) -> BoundCall:
    """For each value of self (*, m), where it goes into sorted_sequence (*, n), or (n,) for all -> (*, m) integers.

    Before the equal ones, or after them on the right side. `sorter` (*, n) sorts a sequence that is not.
    """
    check_one_of(side, "side", (None, "left", "right"))
    if right and side == "left":
        raise InvalidArgument("argument 'side' is 'left', but argument 'right' is true")
    values = np.asarray(self)
    if sorted_sequence.ndim == 0:
        raise InvalidArgument("argument 'sorted_sequence' must have at least 1 dimension, but has shape ()")
    if sorted_sequence.ndim > 1 and sorted_sequence.shape[:-1] != values.shape[:-1]:
        raise InvalidArgument(
            f"argument 'sorted_sequence' has shape {sorted_sequence.shape}, but 'self' has shape {values.shape}:"
            " all of their dims but the last must be equal"
        )
    if sorter is not None:
        check_index(sorter, "sorter")
        check_shape(sorter, sorted_sequence.shape, "sorter")
    common = compute_type(result_type(sorted_sequence, self))
    if is_complex(common):
        raise InvalidType("arguments 'sorted_sequence' and 'self' must be real: complex numbers have no order")
    out = context.resize(out, values.shape)

    from_right = right or side == "right"

    def call() -> None:
        sequence = sorted_sequence if sorter is None else _sort(sorted_sequence, sorter)
        _search(from_right, sequence.astype(common, copy=False), values.astype(common, copy=False), out)

    return call


def _sort(sequence: Array, sorter: Array) -> Array:
    if sorter.size and (int(sorter.min()) < 0 or int(sorter.max()) >= sequence.shape[-1]):
        raise InvalidArgument(f"argument 'sorter' points outside of a dimension of size {sequence.shape[-1]}")
    return np.take_along_axis(sequence, sorter.astype(np.int64, copy=False), -1)


def _search(from_right: bool, sequence: Array, values: Array, out: Array) -> None:
    if sequence.ndim == 1 and not (_has_nan(sequence) or _has_nan(values)):
        out[...] = np.searchsorted(sequence, values, "right" if from_right else "left")
    else:
        _bisect(np.greater if from_right else np.greater_equal, sequence, values, out)


def _has_nan(x: Array) -> bool:
    return x.dtype.kind == "f" and bool(np.isnan(x).any())


def _bisect(after: np.ufunc, sequence: Array, values: Array, out: Array) -> None:
    """All values at once, each in its row, by torch's comparisons: no value comes before a NaN, and NaN goes last."""
    size = sequence.shape[-1]
    low, high = np.zeros(values.shape, np.int64), np.full(values.shape, size)
    for _ in range(size.bit_length()):
        middle = (low + high) >> 1
        places = np.minimum(middle, size - 1)
        probes = sequence[places] if sequence.ndim == 1 else np.take_along_axis(sequence, places, -1)
        left_half = after(probes, values)
        low = np.where(left_half, low, np.minimum(middle + 1, high))
        high = np.where(left_half, middle, high)
    out[...] = low


@kernel("aten::bucketize.Tensor_out", "aten::bucketize.Scalar_out")
def bucketize(
    context: Context, self: Array | Scalar, boundaries: Array, out_int32: bool, right: bool, out: Array
) -> BoundCall:
    """The bucket of each value between sorted boundaries (n,)."""
    check_rank(boundaries, (1,), "boundaries")
    return searchsorted(context, boundaries, self, out_int32, right, None, None, out)
