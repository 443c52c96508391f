"""Reductions over dims. Sums of integers are int64, of halves computed in float32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import staged_call, staging_buffer
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import (
    BOOL,
    DType,
    compute_type,
    is_complex,
    is_integral,
    real_type,
    requested_type,
    sum_type,
)
from delegraph.runtime.numpy_kernels.shapes import Shape, along, reduced, reduction_axes

from ..library import in_turn, kernel, prepare_out

Dims = Sequence[int] | None


_SHORT: Final = 16  # elements along a dim that are combined slice by slice sooner than row by row
_MANY: Final = 256  # results from which on that pays


def reduce_with(ufunc: np.ufunc, x: Array, axes: Shape, out: Array) -> None:
    """ufunc.reduce(x, axes) into `out`, in which reduced dims have size 1, in the dtype of `out`."""
    if len(axes) == 1 and 1 < x.shape[axes[0]] <= _SHORT and out.size >= _MANY:
        first, second, *rest = (x[along(axes[0], slice(i, i + 1))] for i in range(x.shape[axes[0]]))
        ufunc(first, second, out=out, dtype=out.dtype, casting="unsafe")
        for part in rest:
            ufunc(out, part, out=out, dtype=out.dtype, casting="unsafe")
    else:
        ufunc.reduce(x, axes, out.dtype, out, keepdims=True)


def reduce_call(
    context: Context,
    function: Callable[[Array, Shape, Array], object],
    self: Array,
    axes: Shape,
    keepdim: bool,
    out: Array,
    dtype: DType,
) -> BoundCall:
    """`function(x, axes, result)` with a result of the compute type of `dtype`, in which reduced dims have size 1.

    `x` is in that type too, but for integers: NumPy casts them as it goes.
    """
    out = prepare_out(context, out, dtype, reduced(self.shape, axes, keepdim))
    compute = compute_type(dtype)
    source = staging_buffer(context, self, self.dtype if is_integral(self.dtype) else compute)
    result = staging_buffer(context, out.reshape(reduced(self.shape, axes, True)), compute)
    return staged_call(partial(function, source.buffer, axes, result.buffer), [source], [result])


# ---- sums, products, means --------------------------------------------------------------------------

_sum = partial(reduce_with, np.add)
_product = partial(reduce_with, np.multiply)


def _mean(x: Array, axes: Shape, out: Array) -> None:
    _sum(x, axes, out)
    np.divide(out, out.dtype.type(x.size // max(out.size, 1)), out)


@kernel("aten::sum.IntList_out")
def sum_(context: Context, self: Array, dim: Dims, keepdim: bool, dtype: int | None, out: Array) -> BoundCall:
    result = requested_type(dtype, sum_type(self.dtype))
    return reduce_call(context, _sum, self, reduction_axes(dim, self.ndim), keepdim, out, result)


@kernel("aten::mean.out")
def mean(context: Context, self: Array, dim: Dims, keepdim: bool, dtype: int | None, out: Array) -> BoundCall:
    result = requested_type(dtype, self.dtype)
    if is_integral(result):
        raise InvalidType(f"a mean is floating-point, but the input or the argument 'dtype' says {result}")
    return reduce_call(context, _mean, self, reduction_axes(dim, self.ndim), keepdim, out, result)


@kernel("aten::mean.dtype_out")
def mean_of_all(context: Context, self: Array, dtype: int | None, out: Array) -> BoundCall:
    return mean(context, self, None, False, dtype, out)


@kernel("aten::prod.int_out")
def prod(context: Context, self: Array, dim: int, keepdim: bool, dtype: int | None, out: Array) -> BoundCall:
    result = requested_type(dtype, sum_type(self.dtype))
    return reduce_call(context, _product, self, reduction_axes([dim], self.ndim), keepdim, out, result)


@kernel("aten::prod.out")
def prod_of_all(context: Context, self: Array, dtype: int | None, out: Array) -> BoundCall:
    result = requested_type(dtype, sum_type(self.dtype))
    return reduce_call(context, _product, self, reduction_axes(None, self.ndim), False, out, result)


# ---- variance ---------------------------------------------------------------------------------------


def sum_of_squares(x: Array, axes: Shape, out: Array, spare: Array) -> None:
    """Σ |x|² over `axes` into the real `out`; `spare`, of x's shape and dtype (or x itself), may be overwritten."""
    trailing = axes == tuple(range(x.ndim - len(axes), x.ndim))
    if trailing and x.flags.c_contiguous and x.size > _SHORT * out.size:
        rows = x.reshape(*out.shape[: x.ndim - len(axes)], -1).view(out.dtype)  # of complex numbers: both parts
        out[...] = np.matmul(rows[..., None, :], rows[..., None]).reshape(out.shape)  # BLAS
    else:
        np.multiply(x, np.conjugate(x) if is_complex(x.dtype) else x, spare)
        reduce_with(np.add, spare.real, axes, out)


def _variance_call(
    context: Context,
    self: Array,
    dim: Dims,
    correction: Scalar | None,
    keepdim: bool,
    out: Array,
    average: Array | None,
) -> BoundCall:
    """Sum of squared deviations / (count - correction), and the mean into `average` if it is given."""
    assert not isinstance(correction, complex)
    if is_integral(self.dtype):
        raise InvalidType(f"argument 'self' must be floating-point or complex, but is {self.dtype}")
    axes = reduction_axes(dim, self.ndim)
    shape, kept = reduced(self.shape, axes, keepdim), reduced(self.shape, axes, True)
    compute = compute_type(self.dtype)
    variance = staging_buffer(
        context, prepare_out(context, out, real_type(self.dtype), shape).reshape(kept), real_type(compute)
    )
    if average is None:
        center = staging_buffer(context, context.workspace(kept, compute), compute)
    else:
        center = staging_buffer(context, prepare_out(context, average, self.dtype, shape).reshape(kept), compute)
    source = staging_buffer(context, self, compute)
    deviations = source.buffer if source.buffer is not self else context.workspace(self.shape, compute)
    count = self.size // max(math.prod(kept), 1)
    degrees = max(count - (1 if correction is None else correction), 0)

    def function() -> None:
        _mean(source.buffer, axes, center.buffer)
        np.subtract(source.buffer, center.buffer, deviations)
        sum_of_squares(deviations, axes, variance.buffer, deviations)
        np.divide(variance.buffer, variance.buffer.dtype.type(degrees), variance.buffer)

    return staged_call(function, [source], [variance, center])


@kernel("aten::var.correction_out")
def var(context: Context, self: Array, dim: Dims, correction: Scalar | None, keepdim: bool, out: Array) -> BoundCall:
    """The correction is 1 unless given."""
    return _variance_call(context, self, dim, correction, keepdim, out, None)


@kernel("aten::var.out")
def var_unbiased(context: Context, self: Array, dim: Dims, unbiased: bool, keepdim: bool, out: Array) -> BoundCall:
    return var(context, self, dim, int(unbiased), keepdim, out)


@kernel("aten::var_mean.correction_out")
def var_mean(
    context: Context, self: Array, dim: Dims, correction: Scalar | None, keepdim: bool, out0: Array, out1: Array
) -> BoundCall:
    return _variance_call(context, self, dim, correction, keepdim, out0, out1)


# ---- extremes ---------------------------------------------------------------------------------------

_EXTREMES: Final = {"max": np.maximum, "min": np.minimum}  # both hand NaN on
_POSITIONS: Final = {"max": np.argmax, "min": np.argmin}  # the first one; the first NaN if there is any


def _check(self: Array, axes: Shape) -> None:
    if is_complex(self.dtype):
        raise InvalidType(f"argument 'self' is {self.dtype}: complex numbers have no order")
    if any(self.shape[axis] == 0 for axis in axes):
        raise InvalidArgument(
            f"argument 'self' of shape {self.shape} has no element to choose in the dims {list(axes)}"
        )


def _extreme(ufunc: np.ufunc, context: Context, self: Array, dim: Dims, keepdim: bool, out: Array) -> BoundCall:
    axes = reduction_axes(dim, self.ndim)
    _check(self, axes)

    return reduce_call(context, partial(reduce_with, ufunc), self, axes, keepdim, out, self.dtype)


def _extreme_of_all(ufunc: np.ufunc, context: Context, self: Array, out: Array) -> BoundCall:
    return _extreme(ufunc, context, self, None, False, out)


def _position(
    find: Callable[..., Array], context: Context, self: Array, dim: int | None, keepdim: bool, out: Array
) -> BoundCall:
    axes = reduction_axes(None if dim is None else [dim], self.ndim)
    _check(self, axes)
    out = context.resize(out, reduced(self.shape, axes, keepdim))
    axis = None if dim is None or self.ndim == 0 else axes[0]
    return partial(_find, find, self, axis, out)


def _find(find: Callable[..., Array], x: Array, axis: int | None, out: Array) -> None:
    positions = find(x, axis)
    out[...] = positions if axis is None else positions.reshape(out.shape)


def _extreme_and_position(
    name: str, context: Context, self: Array, dim: int, keepdim: bool, values: Array, indices: Array
) -> BoundCall:
    find_value = _extreme(_EXTREMES[name], context, self, [dim], keepdim, values)
    find_position = _position(_POSITIONS[name], context, self, dim, keepdim, indices)
    return in_turn(find_value, find_position)


for _name, _ufunc in _EXTREMES.items():
    kernel(f"aten::a{_name}.out")(partial(_extreme, _ufunc))
    kernel(f"aten::{_name}.unary_out")(partial(_extreme_of_all, _ufunc))
    kernel(f"aten::{_name}.dim_{_name}")(partial(_extreme_and_position, _name))
for _name, _function in _POSITIONS.items():
    kernel(f"aten::arg{_name}.out")(partial(_position, _function))


# ---- any --------------------------------------------------------------------------------------------


@kernel("aten::any.dims_out")
def any_of_dims(context: Context, self: Array, dim: Dims, keepdim: bool, out: Array) -> BoundCall:
    axes = reduction_axes(dim, self.ndim) if dim is None or dim else ()
    out = context.resize(out, reduced(self.shape, axes, keepdim))
    return partial(_any, self, axes, keepdim, out)


def _any(x: Array, axes: Shape, keepdim: bool, out: Array) -> None:
    is_true = x if x.dtype == BOOL else x != 0
    out[...] = np.any(is_true, axes, keepdims=keepdim)


@kernel("aten::any.out")
def any_of_dim(context: Context, self: Array, dim: int, keepdim: bool, out: Array) -> BoundCall:
    return any_of_dims(context, self, [dim], keepdim, out)


@kernel("aten::any.all_out")
def any_of_all(context: Context, self: Array, out: Array) -> BoundCall:
    return any_of_dims(context, self, None, False, out)
