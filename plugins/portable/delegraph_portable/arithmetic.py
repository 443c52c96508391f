"""Arithmetic of two operands, tensors or a tensor and a Python number: the table, then what is more than a ufunc."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.runtime.kernels import BoundCall

from .evaluate import as_array, function_call, ufunc_call
from .library import Array, Context, Scalar, kernel
from .pointwise import rsqrt
from .promotion import (
    BOOL,
    check_one_of,
    check_result,
    compute_type,
    float_type,
    is_integral,
    result_type,
)
from .shapes import broadcast

Operand = Array | Scalar

_UFUNCS: Final[dict[str, np.ufunc]] = {
    "aten::fmod.Scalar_out": np.fmod,
    "aten::fmod.Tensor_out": np.fmod,
    "aten::maximum.out": np.maximum,
    "aten::minimum.out": np.minimum,
    "aten::mul.Scalar_out": np.multiply,
    "aten::mul.out": np.multiply,
    "aten::remainder.Scalar_out": np.remainder,
    "aten::remainder.Tensor_out": np.remainder,
}
_DIVISIONS: Final = {np.fmod, np.remainder, np.floor_divide}


def _shape(operand: Operand) -> tuple[int, ...]:
    return operand.shape if isinstance(operand, np.ndarray) else ()


def _binary(ufunc: np.ufunc, context: Context, self: Operand, other: Operand, out: Array) -> BoundCall:
    dtype = result_type(self, other)
    check_result(dtype, out)
    out = context.resize(out, broadcast(_shape(self), _shape(other)))
    call = ufunc_call(ufunc, (self, other), out, dtype)
    return _checked_division(call, other) if ufunc in _DIVISIONS and is_integral(dtype) else call


def _checked_division(call: BoundCall, divisor: Operand) -> BoundCall:
    """`call`, which first refuses an integer division by zero."""

    def checked() -> None:
        if not np.all(divisor):
            raise InvalidArgument("argument 'other' holds a zero, by which no integer can be divided")
        call()

    return checked


for _op, _ufunc in _UFUNCS.items():
    kernel(_op)(partial(_binary, _ufunc))


# ---- sums and differences ---------------------------------------------------------------------------


def _scaled(ufunc: np.ufunc, context: Context, self: Operand, other: Operand, alpha: Scalar, out: Array) -> BoundCall:
    """`ufunc(self, alpha * other)`."""
    dtype = result_type(self, other)
    check_result(dtype, out)
    if is_integral(dtype) and not isinstance(alpha, int):
        raise InvalidType(f"argument 'alpha' is {alpha!r}, which does not fit the result's dtype {dtype}")
    if dtype == BOOL and ufunc is np.subtract:
        raise InvalidType("subtraction is not defined for bool tensors; use logical_xor")
    out = context.resize(out, broadcast(_shape(self), _shape(other)))
    if alpha == 1:
        return ufunc_call(ufunc, (self, other), out, dtype)
    compute = compute_type(dtype)
    factor = as_array(alpha, compute)

    def function(a: Array, b: Array, result: Array) -> None:
        np.add(a, b * factor, result) if ufunc is np.add else np.subtract(a, b * factor, result)

    return function_call(context, function, (as_array(self, compute), as_array(other, compute)), out, compute)


kernel("aten::add.out", "aten::add.Scalar_out")(partial(_scaled, np.add))
kernel("aten::sub.out", "aten::sub.Scalar_out")(partial(_scaled, np.subtract))


@kernel("aten::rsub.Scalar_out")
def rsub(context: Context, self: Array, other: Scalar, alpha: Scalar, out: Array) -> BoundCall:
    return _scaled(np.subtract, context, other, self, alpha, out)


# ---- quotients --------------------------------------------------------------------------------------


@kernel("aten::div.out", "aten::div.Scalar_out")
def div(context: Context, self: Array, other: Operand, out: Array) -> BoundCall:
    dtype = float_type(result_type(self, other))
    check_result(dtype, out)
    out = context.resize(out, broadcast(self.shape, _shape(other)))
    return ufunc_call(np.divide, (self, other), out, dtype)


@kernel("aten::div.out_mode", "aten::div.Scalar_mode_out")
def div_mode(context: Context, self: Array, other: Operand, rounding_mode: str | None, out: Array) -> BoundCall:
    check_one_of(rounding_mode, "rounding_mode", (None, "floor", "trunc"))
    if rounding_mode is None:
        return div(context, self, other, out)
    return (
        _binary(np.floor_divide, context, self, other, out)
        if rounding_mode == "floor"
        else _div_trunc(context, self, other, out)
    )


kernel("aten::floor_divide.out")(partial(_binary, np.floor_divide))


def _div_trunc(context: Context, self: Array, other: Operand, out: Array) -> BoundCall:
    dtype = result_type(self, other)
    check_result(dtype, out)
    out = context.resize(out, broadcast(self.shape, _shape(other)))
    compute = compute_type(dtype)
    function = _truncated_integer_quotient if is_integral(dtype) else _truncated_quotient
    call = function_call(context, function, (self, as_array(other, compute)), out, compute)
    return _checked_division(call, other) if is_integral(dtype) else call


def _truncated_quotient(a: Array, b: Array, out: Array) -> None:
    np.divide(a, b, out)
    np.trunc(out, out)


def _truncated_integer_quotient(a: Array, b: Array, out: Array) -> None:
    """a minus what fmod leaves (with a's sign) is a multiple of b."""
    np.floor_divide(a - np.fmod(a, b), b, out)


# ---- powers -----------------------------------------------------------------------------------------

_EXACT_POWERS: Final[dict[object, Callable[[Array, Array], object]]] = {
    0.5: np.sqrt,
    -0.5: rsqrt,
    1.0: np.positive,
    2.0: np.square,
    -1.0: np.reciprocal,
}
"""Exponents that are computed otherwise, as in torch: a hundred times faster than np.power, and rounded correctly."""


@kernel("aten::pow.Tensor_Scalar_out")
def pow_scalar(context: Context, self: Array, exponent: Scalar, out: Array) -> BoundCall:
    dtype = result_type(self, exponent)
    if is_integral(dtype) and isinstance(exponent, int) and exponent < 0:
        raise InvalidArgument(f"argument 'exponent' is {exponent}: no integer has a negative integer power")
    function = None if is_integral(dtype) else _EXACT_POWERS.get(exponent)
    if function is None:
        return pow_tensor(context, self, exponent, out)
    check_result(dtype, out)
    return function_call(context, function, (self,), context.resize(out, self.shape), compute_type(dtype))


@kernel("aten::pow.Tensor_Tensor_out", "aten::pow.Scalar_out")
def pow_tensor(context: Context, self: Operand, exponent: Operand, out: Array) -> BoundCall:
    dtype = result_type(self, exponent)
    if dtype == BOOL:
        raise InvalidType("powers are not defined for bool tensors")
    check_result(dtype, out)
    out = context.resize(out, broadcast(_shape(self), _shape(exponent)))
    if not is_integral(dtype):
        return ufunc_call(np.power, (self, exponent), out, dtype)
    operands = (as_array(self, dtype), as_array(exponent, dtype))
    return function_call(context, _integer_power, operands, out, dtype)


def _integer_power(base: Array, exponent: Array, out: Array) -> None:
    """Integer powers; of a negative exponent as torch has it: 0, except for the bases 1 and -1."""
    np.power(base, np.maximum(exponent, 0), out)
    negative = exponent < 0
    if np.any(negative):
        sign = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (exponent & 1), 0))
        np.copyto(out, sign, casting="unsafe", where=negative)


# ---- others -----------------------------------------------------------------------------------------


@kernel("aten::atan2.out")
def atan2(context: Context, self: Array, other: Array, out: Array) -> BoundCall:
    dtype = float_type(result_type(self, other))
    check_result(dtype, out)
    out = context.resize(out, broadcast(self.shape, other.shape))
    return ufunc_call(np.arctan2, (self, other), out, dtype)


@kernel("aten::clamp.out", "aten::clamp.Tensor_out")
def clamp(context: Context, self: Array, min: Operand | None, max: Operand | None, out: Array) -> BoundCall:
    """Between `min` and `max`; `max` where they cross. NaN in any of them gives NaN."""
    if min is None and max is None:
        raise InvalidArgument("arguments 'min' and 'max' are both None")
    bounds = [(ufunc, bound) for ufunc, bound in ((np.maximum, min), (np.minimum, max)) if bound is not None]
    dtype = result_type(self, *(bound for _, bound in bounds))
    check_result(dtype, out)
    out = context.resize(out, broadcast(self.shape, *(_shape(bound) for _, bound in bounds)))
    if len(bounds) == 1:
        return ufunc_call(bounds[0][0], (self, bounds[0][1]), out, dtype)
    compute = compute_type(dtype)
    operands = [self, *(as_array(bound, compute) for _, bound in bounds)]
    return function_call(context, _clip, operands, out, compute)


def _clip(x: Array, low: Array, high: Array, out: Array) -> None:
    x.clip(low, high, out)
