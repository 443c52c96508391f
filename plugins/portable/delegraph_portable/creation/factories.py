"""Tensors made from numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import as_array, copy_call, nothing
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import INT64, is_integral

from ..library import kernel


def _fill(out: Array, value: Scalar) -> BoundCall:
    return copy_call(out, as_array(value, out.dtype))


def _shape(size: Sequence[int]) -> tuple[int, ...]:
    if any(s < 0 for s in size):
        raise InvalidArgument(f"argument 'size' has a negative dimension: {list(size)}")
    return tuple(size)


@kernel("aten::full.out")
def full(context: Context, size: Sequence[int], fill_value: Scalar, out: Array) -> BoundCall:
    return _fill(context.resize(out, _shape(size)), fill_value)


@kernel("aten::ones.out")
def ones(context: Context, size: Sequence[int], out: Array) -> BoundCall:
    return _fill(context.resize(out, _shape(size)), 1)


@kernel("aten::zeros.out")
def zeros(context: Context, size: Sequence[int], out: Array) -> BoundCall:
    return _fill(context.resize(out, _shape(size)), 0)


@kernel("aten::full_like.out")
def full_like(context: Context, self: Array, fill_value: Scalar, memory_format: int | None, out: Array) -> BoundCall:
    return _fill(context.resize(out, self.shape), fill_value)


@kernel("aten::fill.Scalar_out")
def fill(context: Context, self: Array, value: Scalar, out: Array) -> BoundCall:
    return _fill(context.resize(out, self.shape), value)


@kernel("aten::fill.Tensor_out")
def fill_tensor(context: Context, self: Array, value: Array, out: Array) -> BoundCall:
    if value.ndim:
        raise InvalidArgument(f"argument 'value' must be a 0-d tensor, but has shape {value.shape}")
    return copy_call(context.resize(out, self.shape), value)


@kernel("aten::scalar_tensor.out")
def scalar_tensor(context: Context, s: Scalar, out: Array) -> BoundCall:
    return _fill(context.resize(out, ()), s)


@kernel("aten::empty.out")
def empty(context: Context, size: Sequence[int], memory_format: int | None, out: Array) -> BoundCall:
    context.resize(out, _shape(size))
    return nothing  # the memory of a new tensor stays as it is


@kernel("aten::empty_strided.out", "aten::empty_permuted.out")
def empty_laid_out(context: Context, size: Sequence[int], layout: Sequence[int], out: Array) -> BoundCall:
    """The layout in memory is that of the planned `out`."""
    return empty(context, size, None, out)


@kernel("aten::new_empty_strided.out")
def new_empty_strided(
    context: Context, self: Array, size: Sequence[int], stride: Sequence[int], out: Array
) -> BoundCall:
    return empty(context, size, None, out)


@kernel("aten::arange.start_out")
def arange(context: Context, start: Scalar, end: Scalar, step: Scalar, out: Array) -> BoundCall:
    """start, start + step, … below `end`; ⌈(end - start) / step⌉ elements.

    As in torch int64 takes all three as integers, other integers start and step, but not for the length.
    """
    assert not isinstance(start, complex) and not isinstance(end, complex) and not isinstance(step, complex)
    if out.dtype == INT64 and all(map(math.isfinite, (start, end, step))):
        start, end, step = int(start), int(end), int(step)
    if step == 0 or not all(map(math.isfinite, (start, end, step))) or (end - start) * step < 0:
        raise InvalidArgument(f"arguments 'start' {start}, 'end' {end} and 'step' {step} make no range")
    exact = all(isinstance(v, int) for v in (start, end, step))
    length = -((start - end) // step) if exact else math.ceil((end - start) / step)
    out = context.resize(out, (int(length),))
    if is_integral(out.dtype):
        start, step = int(start), int(step)
    dtype = INT64 if is_integral(out.dtype) else np.dtype(np.float64)
    values: Array = np.arange(int(length), dtype=dtype)
    return copy_call(out, start + values * step)


@kernel("aten::arange.out")
def arange_to(context: Context, end: Scalar, out: Array) -> BoundCall:
    return arange(context, 0, end, 1, out)


# ---- indices of triangles ---------------------------------------------------------------------------


@kernel("aten::tril_indices.out")
def tril_indices(context: Context, row: int, col: int, offset: int, out: Array) -> BoundCall:
    """(2, n): rows and columns of the elements on and below a diagonal."""
    return _triangle(context, row, col, offset, False, out)


@kernel("aten::triu_indices.out")
def triu_indices(context: Context, row: int, col: int, offset: int, out: Array) -> BoundCall:
    """(2, n): rows and columns of the elements on and above a diagonal."""
    return _triangle(context, row, col, offset, True, out)


def _triangle(context: Context, row: int, col: int, offset: int, upper: bool, out: Array) -> BoundCall:
    if min(row, col) < 0:
        raise InvalidArgument(f"arguments 'row' {row} and 'col' {col} must not be negative")
    rows, columns = np.ogrid[:row, :col]
    places = np.stack(np.nonzero(columns - rows >= offset if upper else columns - rows <= offset))
    return copy_call(context.resize(out, places.shape), places)
