"""Reductions over dims, and running sums. Sums of integers are int64, of halves computed in float32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.runtime.kernels import BoundCall

from .evaluate import copy_call, function_call
from .library import Array, Context, Scalar, kernel
from .promotion import (
    BOOL,
    DType,
    check_floating,
    check_result,
    compute_type,
    is_integral,
    requested_type,
    sum_type,
)
from .shapes import Shape, reduced, reduction_axes, wrap_dim

Dims = Sequence[int] | None


def _reduce_call(
    context: Context,
    function: Callable[..., Any],
    self: Array,
    axes: Shape,
    keepdim: bool,
    out: Array,
    dtype: DType,
) -> BoundCall:
    """`function(x, axes, result)` in `dtype`, with every reduced dim kept at size 1 in `result`."""
    check_result(dtype, out)
    out = context.resize(out, reduced(self.shape, axes, keepdim))
    kept = out.reshape(reduced(self.shape, axes, True))
    return function_call(context, partial(_in_order, function, axes), (self,), kept, compute_type(dtype))


def _in_order(function: Callable[..., Any], axes: Shape, x: Array, out: Array) -> None:
    function(x, axes, out)


# ---- sums, products, means --------------------------------------------------------------------------


def _sum(x: Array, axes: Shape, out: Array) -> None:
    np.add.reduce(x, axes, out=out, keepdims=True)


def _product(x: Array, axes: Shape, out: Array) -> None:
    np.multiply.reduce(x, axes, out=out, keepdims=True)


def _mean(x: Array, axes: Shape, out: Array) -> None:
    np.add.reduce(x, axes, out=out, keepdims=True)
    np.divide(out, x.size // max(out.size, 1), out)


@kernel("aten::sum.IntList_out")
def sum_(context: Context, self: Array, dim: Dims, keepdim: bool, dtype: int | None, out: Array) -> BoundCall:
    result = requested_type(dtype, sum_type(self.dtype))
    return _reduce_call(context, _sum, self, reduction_axes(dim, self.ndim), keepdim, out, result)


@kernel("aten::mean.out")
def mean(context: Context, self: Array, dim: Dims, keepdim: bool, dtype: int | None, out: Array) -> BoundCall:
    result = requested_type(dtype, self.dtype)
    if is_integral(result):
        raise InvalidType(f"a mean is floating-point, but the input or the argument 'dtype' says {result}")
    return _reduce_call(context, _mean, self, reduction_axes(dim, self.ndim), keepdim, out, result)


@kernel("aten::mean.dtype_out")
def mean_of_all(context: Context, self: Array, dtype: int | None, out: Array) -> BoundCall:
    return mean(context, self, None, False, dtype, out)


@kernel("aten::prod.int_out")
def prod(context: Context, self: Array, dim: int, keepdim: bool, dtype: int | None, out: Array) -> BoundCall:
    result = requested_type(dtype, sum_type(self.dtype))
    return _reduce_call(context, _product, self, reduction_axes([dim], self.ndim), keepdim, out, result)


@kernel("aten::prod.out")
def prod_of_all(context: Context, self: Array, dtype: int | None, out: Array) -> BoundCall:
    result = requested_type(dtype, sum_type(self.dtype))
    return _reduce_call(context, _product, self, reduction_axes(None, self.ndim), False, out, result)


@kernel("aten::cumsum.out")
def cumsum(context: Context, self: Array, dim: int, dtype: int | None, out: Array) -> BoundCall:
    result = requested_type(dtype, sum_type(self.dtype))
    check_result(result, out)
    axis = wrap_dim(dim, self.ndim)
    out = context.resize(out, self.shape)
    if self.ndim == 0:
        return copy_call(out, self)

    def function(x: Array, sums: Array) -> None:
        np.add.accumulate(x, axis, out=sums)

    return function_call(context, function, (self,), out, compute_type(result))


# ---- variance ---------------------------------------------------------------------------------------


def _variance(correction: float, x: Array, axes: Shape, out: Array) -> None:
    _mean(x, axes, out)
    np.add.reduce(np.square(x - out), axes, out=out, keepdims=True)
    degrees = max(x.size // max(out.size, 1) - correction, 0)
    np.divide(out, out.dtype.type(degrees), out)


@kernel("aten::var.correction_out")
def var(context: Context, self: Array, dim: Dims, correction: Scalar | None, keepdim: bool, out: Array) -> BoundCall:
    """Sum of squared deviations / (count - correction); the correction is 1 unless given."""
    check_floating(self, "self")
    function = partial(_variance, _correction(correction))
    return _reduce_call(context, function, self, reduction_axes(dim, self.ndim), keepdim, out, self.dtype)


@kernel("aten::var.out")
def var_unbiased(context: Context, self: Array, dim: Dims, unbiased: bool, keepdim: bool, out: Array) -> BoundCall:
    return var(context, self, dim, int(unbiased), keepdim, out)


@kernel("aten::var_mean.correction_out")
def var_mean(
    context: Context, self: Array, dim: Dims, correction: Scalar | None, keepdim: bool, out0: Array, out1: Array
) -> BoundCall:
    variance = var(context, self, dim, correction, keepdim, out0)
    average = mean(context, self, dim, keepdim, None, out1)

    def call() -> None:
        variance()
        average()

    return call


def _correction(value: Scalar | None) -> float:
    assert not isinstance(value, complex)
    return 1 if value is None else value


# ---- extremes ---------------------------------------------------------------------------------------

_EXTREMES: Final = {"max": np.maximum, "min": np.minimum}  # both hand NaN on
_POSITIONS: Final = {"max": np.argmax, "min": np.argmin}  # the first one; the first NaN if there is any


def _check_not_empty(self: Array, axes: Shape) -> None:
    if any(self.shape[axis] == 0 for axis in axes):
        raise InvalidArgument(
            f"argument 'self' of shape {self.shape} has no element to choose in the dims {list(axes)}"
        )


def _extreme(ufunc: np.ufunc, context: Context, self: Array, dim: Dims, keepdim: bool, out: Array) -> BoundCall:
    axes = reduction_axes(dim, self.ndim)
    _check_not_empty(self, axes)

    def function(x: Array, axes: Shape, result: Array) -> None:
        ufunc.reduce(x, axes, out=result, keepdims=True)

    return _reduce_call(context, function, self, axes, keepdim, out, self.dtype)


def _extreme_of_all(ufunc: np.ufunc, context: Context, self: Array, out: Array) -> BoundCall:
    return _extreme(ufunc, context, self, None, False, out)


def _position(
    find: Callable[..., Array], context: Context, self: Array, dim: int | None, keepdim: bool, out: Array
) -> BoundCall:
    axes = reduction_axes(None if dim is None else [dim], self.ndim)
    _check_not_empty(self, axes)
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

    def call() -> None:
        find_value()
        find_position()

    return call


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
    found = x if x.dtype == BOOL else x != 0
    out[...] = np.any(found, axes, keepdims=keepdim)


@kernel("aten::any.out")
def any_of_dim(context: Context, self: Array, dim: int, keepdim: bool, out: Array) -> BoundCall:
    return any_of_dims(context, self, [dim], keepdim, out)


@kernel("aten::any.all_out")
def any_of_all(context: Context, self: Array, out: Array) -> BoundCall:
    return any_of_dims(context, self, None, False, out)
