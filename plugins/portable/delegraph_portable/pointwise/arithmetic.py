"""Arithmetic of two operands, tensors or a tensor and a Python number: ufuncs in a table, then further kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import as_array, function_call, staged_call, staging_buffer, ufunc_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import (
    BOOL,
    check_kind,
    check_one_of,
    check_same_dtype,
    compute_type,
    float_type,
    is_complex,
    is_floating,
    is_integral,
    result_type,
)
from delegraph.runtime.numpy_kernels.shapes import broadcast

from ..library import broadcast_out, elementwise, in_turn, kernel

Operand: TypeAlias = Array | Scalar

_UFUNCS: Final[dict[str, tuple[str, np.ufunc]]] = {
    "aten::fmax.out": ("bif", np.fmax),
    "aten::fmin.out": ("bif", np.fmin),
    "aten::fmod.Scalar_out": ("if", np.fmod),
    "aten::fmod.Tensor_out": ("if", np.fmod),
    "aten::gcd.out": ("i", np.gcd),
    "aten::hypot.out": ("f", np.hypot),
    "aten::maximum.out": ("bif", np.maximum),
    "aten::minimum.out": ("bif", np.minimum),
    "aten::mul.Scalar_out": ("bifc", np.multiply),
    "aten::mul.out": ("bifc8", np.multiply),
}
"""Operator -> the kinds that the operands' common dtype may be of (see `check_kind`), and NumPy's function."""

_DIVISIONS: Final = {np.fmod, np.remainder, np.floor_divide}


_OF_THE_NUMBER: Final = {np.multiply, np.floor_divide}
"""These take a number as it is, as torch does; to all others it is of the operands' common dtype, rounded to halves."""


def _binary(kinds: str, ufunc: np.ufunc, context: Context, self: Operand, other: Operand, out: Array) -> BoundCall:
    dtype = result_type(self, other)
    check_kind(dtype, kinds, "self")
    out = broadcast_out(context, out, dtype, self, other)
    operands = (self, other) if ufunc in _OF_THE_NUMBER else (as_array(self, dtype), as_array(other, dtype))
    call = ufunc_call(ufunc, operands, out, dtype)
    return _checked_division(call, other, out) if ufunc in _DIVISIONS and is_integral(dtype) else call


def _checked_division(call: BoundCall, divisor: Operand, out: Array) -> BoundCall:
    """`call`, which first refuses an integer division by zero, if there is anything to divide."""

    def checked() -> None:
        if out.size and not np.all(divisor):
            raise InvalidArgument("argument 'other' holds a zero, by which no integer can be divided")
        call()

    return checked


for _op, (_kinds, _ufunc) in _UFUNCS.items():
    kernel(_op)(partial(_binary, _kinds, _ufunc))


@kernel("aten::remainder.Scalar_out", "aten::remainder.Scalar_Tensor_out", "aten::remainder.Tensor_out")
def remainder(context: Context, self: Operand, other: Operand, out: Array) -> BoundCall:
    """The remainder of a division rounded down: it has the divisor's sign; a zero, in floats, the dividend's."""
    dtype = result_type(self, other)
    if not is_floating(dtype):
        return _binary("i", np.remainder, context, self, other, out)
    return _binary_function("f", _float_remainder, context, self, other, out)


def _float_remainder(a: Array, b: Array, out: Array) -> None:
    np.fmod(a, b, out)
    np.add(out, b, out, where=(out != 0) & ((out < 0) != (b < 0)))


def _binary_function(
    kinds: str, function: Callable[..., object], context: Context, self: Operand, other: Operand, out: Array
) -> BoundCall:
    """`function(self, other, out)`, all in the dtype that the operands' common dtype is computed in; a number is of the
    common dtype before, as in torch."""
    dtype = result_type(self, other)
    check_kind(dtype, kinds)
    return elementwise(context, function, (as_array(self, dtype), as_array(other, dtype)), out, dtype)


def _lcm(a: Array, b: Array, out: Array) -> None:
    np.lcm(a, b, out)
    if out.itemsize > 2:  # of products that wrapped around; C multiplies smaller integers as int32
        np.absolute(out, out)


kernel("aten::lcm.out")(partial(_binary_function, "i", _lcm))


# ---- sums and differences ---------------------------------------------------------------------------


def _scaled(ufunc: np.ufunc, context: Context, self: Operand, other: Operand, alpha: Scalar, out: Array) -> BoundCall:
    """`ufunc(self, alpha * other)`."""
    dtype = result_type(self, other)
    check_kind(dtype, "bifc")
    if is_integral(dtype) and not isinstance(alpha, int):
        raise InvalidType(f"argument 'alpha' is {alpha!r}, which does not fit the result's dtype {dtype}")
    if ufunc is np.subtract and BOOL in (result_type(self), result_type(other)):
        raise InvalidType("subtraction is not defined for bool tensors; use logical_xor")
    out = broadcast_out(context, out, dtype, self, other)
    if alpha == 1 and not is_complex(dtype):  # torch multiplies complex numbers all the same: infinities give NaN
        return ufunc_call(ufunc, (as_array(self, dtype), as_array(other, dtype)), out, dtype)
    compute = compute_type(dtype)
    factor = as_array(alpha, compute)

    def function(a: Array, b: Array, result: Array) -> None:
        np.add(a, b * factor, result) if ufunc is np.add else np.subtract(a, b * factor, result)

    return function_call(context, function, (as_array(self, dtype), as_array(other, dtype)), out, compute)


kernel("aten::add.out", "aten::add.Scalar_out")(partial(_scaled, np.add))
kernel("aten::sub.out", "aten::sub.Scalar_out")(partial(_scaled, np.subtract))


@kernel("aten::rsub.Scalar_out")
def rsub(context: Context, self: Array, other: Scalar, alpha: Scalar, out: Array) -> BoundCall:
    return _scaled(np.subtract, context, other, self, alpha, out)


@kernel("aten::_add_relu.out", "aten::_add_relu.Scalar_out")
def add_relu(context: Context, self: Array, other: Operand, alpha: Scalar, out: Array) -> BoundCall:
    """The sum, at least 0 and at most the largest number in the dtype of `self`."""
    check_kind(self.dtype, "if")
    check_kind(result_type(self, other), "if")
    out = context.resize(out, broadcast(self.shape, np.shape(other)))
    add = _scaled(np.add, context, self, other, alpha, out)
    limits = np.iinfo(self.dtype) if is_integral(self.dtype) else np.finfo(compute_type(self.dtype))
    largest = as_array(limits.max, out.dtype)
    return in_turn(add, partial(out.clip, as_array(0, out.dtype), largest, out))


# ---- quotients --------------------------------------------------------------------------------------


@kernel("aten::div.out", "aten::div.Scalar_out")
def div(context: Context, self: Array, other: Operand, out: Array) -> BoundCall:
    dtype = float_type(result_type(self, other))
    check_kind(dtype, "fc")
    out = broadcast_out(context, out, dtype, self, other)
    return ufunc_call(np.divide, (self, other), out, dtype)


@kernel("aten::div.out_mode", "aten::div.Scalar_mode_out")
def div_mode(context: Context, self: Array, other: Operand, rounding_mode: str | None, out: Array) -> BoundCall:
    check_one_of(rounding_mode, "rounding_mode", (None, "floor", "trunc"))
    if rounding_mode is None:
        return div(context, self, other, out)
    return (
        _binary("if", np.floor_divide, context, self, other, out)
        if rounding_mode == "floor"
        else _div_trunc(context, self, other, out)
    )


kernel("aten::floor_divide.out")(partial(_binary, "if", np.floor_divide))


def _div_trunc(context: Context, self: Array, other: Operand, out: Array) -> BoundCall:
    dtype = result_type(self, other)
    check_kind(dtype, "if")
    out = broadcast_out(context, out, dtype, self, other)
    compute = compute_type(dtype)
    function = _truncated_integer_quotient if is_integral(dtype) else _truncated_quotient
    call = function_call(context, function, (self, as_array(other, compute)), out, compute)
    return _checked_division(call, other, out) if is_integral(dtype) else call


def _truncated_quotient(a: Array, b: Array, out: Array) -> None:
    np.divide(a, b, out)
    np.trunc(out, out)


def _truncated_integer_quotient(a: Array, b: Array, out: Array) -> None:
    """a minus its remainder by fmod (with a's sign) is a multiple of b."""
    np.floor_divide(a - np.fmod(a, b), b, out)


# ---- products with powers of two --------------------------------------------------------------------


@kernel("aten::ldexp.out")
def ldexp(context: Context, self: Array, other: Array, out: Array) -> BoundCall:
    """self 2^other: exact for floats and integers, else the product with a power of its own dtype."""
    if is_floating(self.dtype) and is_integral(other.dtype):
        return _exact_ldexp(context, self, other, out)
    power_type = result_type(2.0, other)
    dtype = result_type(self, np.empty(other.shape, power_type))
    check_kind(dtype, "fc")
    out = broadcast_out(context, out, dtype, self, other)
    power = context.workspace(other.shape, power_type)
    raise_two = ufunc_call(np.power, (2.0, other), power, power_type)
    multiply = ufunc_call(np.multiply, (self, power), out, dtype)
    return in_turn(raise_two, multiply)


def _exact_ldexp(context: Context, self: Array, other: Array, out: Array) -> BoundCall:
    """Exponents are taken as int32, wrapped around where they do not fit."""
    dtype = result_type(self)
    check_kind(dtype, "f")
    out = broadcast_out(context, out, dtype, self, other)
    x, result = staging_buffer(context, self, compute_type(dtype)), staging_buffer(context, out, compute_type(dtype))
    return staged_call(lambda: np.ldexp(x.buffer, other.astype(np.int32), result.buffer), [x], [result])


# ---- floating-point pairs ---------------------------------------------------------------------------


def _float_binary(ufunc: np.ufunc, context: Context, self: Operand, other: Operand, out: Array) -> BoundCall:
    dtype = float_type(result_type(self, other))
    check_kind(dtype, "f")
    out = broadcast_out(context, out, dtype, self, other)
    return ufunc_call(ufunc, (self, other), out, dtype)


kernel("aten::atan2.out")(partial(_float_binary, np.arctan2))
kernel("aten::copysign.out", "aten::copysign.Scalar_out")(partial(_float_binary, np.copysign))


@kernel("aten::nextafter.out")
def nextafter(context: Context, self: Array, other: Array, out: Array) -> BoundCall:
    """The next number of the operands' own dtype after `self` towards `other`."""
    dtype = result_type(self, other)
    check_kind(dtype, "f")
    out = broadcast_out(context, out, dtype, self, other)
    return lambda: np.copyto(
        out, np.nextafter(self.astype(dtype, copy=False), other.astype(dtype, copy=False)), casting="unsafe"
    )


def _complex_pair(
    function: Callable[[Array, Array, Array, Array], object],
    names: tuple[str, str],
    context: Context,
    first: Array,
    second: Array,
    out: Array,
) -> BoundCall:
    """`function(first, second, real, imag)` into a complex `out`."""
    for array, name in zip((first, second), names, strict=True):
        if array.dtype not in (np.float32, np.float64):
            raise InvalidType(f"argument {name!r} must be float32 or float64, but is {array.dtype}")
    check_same_dtype(first, names[0], second, names[1])
    result = np.dtype(f"c{2 * first.dtype.itemsize}")
    if out.dtype != result:
        raise InvalidType(f"argument 'out' must be {result}, but is {out.dtype}")
    out = context.resize(out, broadcast(first.shape, second.shape))
    return partial(function, first, second, out.real, out.imag)


def _cartesian(real: Array, imag: Array, out_real: Array, out_imag: Array) -> None:
    np.copyto(out_real, real)
    np.copyto(out_imag, imag)


def _polar(abs: Array, angle: Array, out_real: Array, out_imag: Array) -> None:
    np.multiply(abs, np.cos(angle), out_real)
    np.multiply(abs, np.sin(angle), out_imag)


kernel("aten::complex.out")(partial(_complex_pair, _cartesian, ("real", "imag")))
kernel("aten::polar.out")(partial(_complex_pair, _polar, ("abs", "angle")))


# ---- others -----------------------------------------------------------------------------------------


@kernel("aten::_masked_scale.out")
def masked_scale(context: Context, self: Array, mask: Array, scale: float, out: Array) -> BoundCall:
    """self * mask * scale."""
    check_kind(self.dtype, "f")
    factor = as_array(scale, compute_type(self.dtype))

    def function(x: Array, kept: Array, result: Array) -> None:
        np.multiply(x, kept, result)
        np.multiply(result, factor, result)

    return elementwise(context, function, (self, mask), out, self.dtype)


@kernel("aten::clamp.out", "aten::clamp.Tensor_out")
def clamp(context: Context, self: Array, min: Operand | None, max: Operand | None, out: Array) -> BoundCall:
    """Between `min` and `max`; `max` where they cross. NaN in any of them gives NaN."""
    if min is None and max is None:
        raise InvalidArgument("arguments 'min' and 'max' are both None")
    bounds = [(ufunc, bound) for ufunc, bound in ((np.maximum, min), (np.minimum, max)) if bound is not None]
    dtype = result_type(self, *(bound for _, bound in bounds))
    check_kind(dtype, "bif")
    out = broadcast_out(context, out, dtype, self, *(bound for _, bound in bounds))
    if len(bounds) == 1:
        return ufunc_call(bounds[0][0], (self, bounds[0][1]), out, dtype)
    compute = compute_type(dtype)
    operands = [self, *(as_array(bound, compute) for _, bound in bounds)]
    return function_call(context, _clip, operands, out, compute)


def _clip(x: Array, low: Array, high: Array, out: Array) -> None:
    x.clip(low, high, out)
