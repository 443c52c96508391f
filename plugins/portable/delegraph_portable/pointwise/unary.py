"""Elementwise functions of one tensor, one table row each: result type, then NumPy's function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from delegraph.errors import InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import (
    as_array,
    copy_call,
    function_call,
    staged_call,
    staging_buffer,
    ufunc_call,
)
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import (
    BOOL,
    DType,
    check_kind,
    check_result,
    compute_type,
    float_type,
    is_complex,
    is_integral,
    real_type,
)

from ..library import elementwise, kernel, prepare_out
from .error_function import erf

TypeRule = Callable[[DType], DType]
"""The dtype of the operand -> the dtype of the result."""


def same_type(dtype: DType) -> DType:
    return dtype


_UFUNCS: Final[dict[str, tuple[str, TypeRule, np.ufunc]]] = {
    "acos": ("bifc", float_type, np.arccos),
    "acosh": ("bifc", float_type, np.arccosh),
    "asin": ("bifc", float_type, np.arcsin),
    "asinh": ("bifc", float_type, np.arcsinh),
    "atan": ("bifc", float_type, np.arctan),
    "atanh": ("bifc", float_type, np.arctanh),
    "bitwise_not": ("bi", same_type, np.invert),
    "ceil": ("if", same_type, np.ceil),
    "cos": ("bifc", float_type, np.cos),
    "cosh": ("bifc", float_type, np.cosh),
    "exp": ("bifc", float_type, np.exp),
    "exp2": ("bifc", float_type, np.exp2),
    "expm1": ("bifc", float_type, np.expm1),
    "floor": ("if", same_type, np.floor),
    "log": ("bifc", float_type, np.log),
    "log10": ("bifc", float_type, np.log10),
    "log2": ("bifc", float_type, np.log2),
    "reciprocal": ("bifc", float_type, np.reciprocal),
    "round": ("if", same_type, np.rint),  # half to even
    "sin": ("bifc", float_type, np.sin),
    "sinh": ("bifc", float_type, np.sinh),
    "sqrt": ("bifc", float_type, np.sqrt),
    "tan": ("bifc", float_type, np.tan),
    "tanh": ("bifc", float_type, np.tanh),
    "trunc": ("if", same_type, np.trunc),
}
"""Operator -> the kinds of dtype that it takes (see `check_kind`), its result type, and NumPy's function."""

_INTEGERS_STAY: Final = {np.ceil, np.floor, np.rint, np.trunc}


def rsqrt(x: Array, out: Array) -> None:
    np.sqrt(x, out)
    np.reciprocal(out, out)


def sigmoid(x: Array, out: Array) -> None:
    """1 / (1 + 1 / exp(x)): relative accuracy at both ends, which a form through tanh would lose."""
    if is_complex(x.dtype):
        np.reciprocal(np.exp(-x) + 1, out)
        return
    np.exp(x, out)
    np.reciprocal(out, out)
    np.add(out, out.dtype.type(1), out)
    np.reciprocal(out, out)


def sign(x: Array, out: Array) -> None:
    """-1, 0 or 1; 0 for NaN."""
    if x.dtype == BOOL:
        np.copyto(out, x)
        return
    np.sign(x, out)
    np.copyto(out, 0, where=x != x)


_FUNCTIONS: Final[dict[str, tuple[str, TypeRule, Callable[[Array, Array], object]]]] = {
    "rsqrt": ("bifc", float_type, rsqrt),
    "sigmoid": ("bifc", float_type, sigmoid),
    "sign": ("bif", same_type, sign),
}


def _apply_ufunc(kinds: str, rule: TypeRule, ufunc: np.ufunc, context: Context, self: Array, out: Array) -> BoundCall:
    check_kind(self.dtype, kinds)
    result = rule(self.dtype)
    out = prepare_out(context, out, result, self.shape)
    if ufunc in _INTEGERS_STAY and result.kind in "iu":
        ufunc = np.positive
    return ufunc_call(ufunc, (self,), out, result)


def _apply_function(
    kinds: str, rule: TypeRule, function: Callable[[Array, Array], object], context: Context, self: Array, out: Array
) -> BoundCall:
    check_kind(self.dtype, kinds)
    return elementwise(context, function, (self,), out, rule(self.dtype))


for _name, (_kinds, _rule, _ufunc) in _UFUNCS.items():
    kernel(f"aten::{_name}.out")(partial(_apply_ufunc, _kinds, _rule, _ufunc))
for _name, (_kinds, _rule, _function) in _FUNCTIONS.items():
    kernel(f"aten::{_name}.out")(partial(_apply_function, _kinds, _rule, _function))


@kernel("aten::abs.out")
def abs_out(context: Context, self: Array, out: Array) -> BoundCall:
    check_kind(self.dtype, "ifc8")
    out = prepare_out(context, out, real_type(self.dtype), self.shape)
    return ufunc_call(np.absolute, (self,), out, self.dtype, result=compute_type(real_type(self.dtype)))


def complex_log1p(z: Array, out: Array) -> None:
    """Of small numbers from |1 + z|² - 1, which has digits where |1 + z| is 1; of those whose magnitude overflows the
    logarithm, which scales them: beside them 1 is lost."""
    np.log1p(z, out)
    size = np.absolute(z)
    np.multiply(np.log1p(z.real * (z.real + 2) + z.imag * z.imag), 0.5, out.real, where=size < 0.5)
    np.log(z, out, where=size == np.inf)


@kernel("aten::log1p.out")
def log1p(context: Context, self: Array, out: Array) -> BoundCall:
    if is_complex(self.dtype):
        return elementwise(context, complex_log1p, (self,), out, self.dtype)
    return _apply_ufunc("bifc", float_type, np.log1p, context, self, out)


@kernel("aten::_conj_physical.out")
def conj_physical(context: Context, self: Array, out: Array) -> BoundCall:
    out = prepare_out(context, out, self.dtype, self.shape)
    return ufunc_call(np.conjugate, (self,), out, self.dtype) if is_complex(self.dtype) else copy_call(out, self)


@kernel("aten::erf.out")
def erf_out(context: Context, self: Array, out: Array) -> BoundCall:
    check_kind(self.dtype, "bif")
    dtype = float_type(self.dtype)
    scratch = context.workspace(self.shape, compute_type(dtype))
    return elementwise(context, partial(erf, 1.0, scratch), (self,), out, dtype)


@kernel("aten::logical_not.out")
def logical_not(context: Context, self: Array, out: Array) -> BoundCall:
    """Whether an element is zero; np.logical_not takes ten times as long."""
    return ufunc_call(np.equal, (self, 0), context.resize(out, self.shape), self.dtype, result=BOOL)


# NumPy 2.4's negative, isnan, isinf and signbit go wrong where neither side is contiguous: others stand for them.


@kernel("aten::neg.out")
def neg(context: Context, self: Array, out: Array) -> BoundCall:
    if self.dtype == BOOL:
        raise InvalidType("negation is not defined for bool tensors; use logical_not")
    check_kind(self.dtype, "ifc")
    zero: Scalar = {"c": complex(-0.0, -0.0), "i": 0, "u": 0}.get(self.dtype.kind, -0.0)
    return ufunc_call(np.subtract, (zero, self), prepare_out(context, out, self.dtype, self.shape), self.dtype)


@kernel("aten::isnan.out")
def isnan(context: Context, self: Array, out: Array) -> BoundCall:
    return ufunc_call(np.not_equal, (self, self), context.resize(out, self.shape), self.dtype, result=BOOL)


@kernel("aten::isinf.out")
def isinf(context: Context, self: Array, out: Array) -> BoundCall:
    out = context.resize(out, self.shape)
    if is_integral(self.dtype):
        return partial(out.fill, False)
    if self.dtype.kind == "c":  # a magnitude overflows where neither part is infinite
        return lambda: np.copyto(out, (np.absolute([self.real, self.imag]) == np.inf).any(0), casting="unsafe")
    return lambda: np.copyto(out, np.absolute(self) == np.inf, casting="unsafe")


@kernel("aten::signbit.out")
def signbit(context: Context, self: Array, out: Array) -> BoundCall:
    check_kind(self.dtype, "bif")
    out = context.resize(out, self.shape)
    if self.dtype.kind in "bu":
        return partial(out.fill, False)
    if self.dtype.kind == "i":
        return ufunc_call(np.less, (self, 0), out, self.dtype, result=BOOL)
    return function_call(context, _signbit, (self,), out, compute_type(self.dtype))


def _signbit(x: Array, out: Array) -> None:
    np.less(np.copysign(x.dtype.type(1), x), 0, out, casting="unsafe")


@kernel("aten::angle.out")
def angle(context: Context, self: Array, out: Array) -> BoundCall:
    """The argument of complex numbers, from -π to π; of real ones 0, π below zero, NaN of NaN."""
    check_kind(self.dtype, "bifc")
    result = real_type(float_type(self.dtype))
    out = prepare_out(context, out, result, self.shape)
    if is_complex(self.dtype):
        return ufunc_call(np.arctan2, (self.imag, self.real), out, result)
    return function_call(context, _real_angle, (self,), out, compute_type(result))


def _real_angle(x: Array, out: Array) -> None:
    np.copyto(out, np.where(x < 0, out.dtype.type(np.pi), np.where(x != x, x, out.dtype.type(0))))


@kernel("aten::round.decimals_out")
def round_decimals(context: Context, self: Array, decimals: int, out: Array) -> BoundCall:
    """Half to even, of the tensor shifted by `decimals` places."""
    check_kind(self.dtype, "if" if decimals == 0 else "f")
    if decimals == 0:
        return _apply_ufunc("if", same_type, np.rint, context, self, out)
    shift, unshift = (np.multiply, np.divide) if decimals > 0 else (np.divide, np.multiply)
    factor = as_array(10.0 ** abs(decimals), compute_type(self.dtype))

    def function(x: Array, result: Array) -> None:
        shift(x, factor, result)
        np.rint(result, result)
        unshift(result, factor, result)

    return elementwise(context, function, (self,), out, self.dtype)


@kernel("aten::frexp.Tensor_out")
def frexp(context: Context, self: Array, mantissa: Array, exponent: Array) -> BoundCall:
    """mantissa 2^exponent, 0.5 ≤ |mantissa| < 1; zero, inf and NaN are their own mantissa, with exponent 0."""
    check_kind(self.dtype, "f")
    check_result(self.dtype, mantissa, "mantissa")
    if exponent.dtype != np.int32:
        raise InvalidType(f"argument 'exponent' must be int32, but is {exponent.dtype}")
    mantissa, exponent = context.resize(mantissa, self.shape), context.resize(exponent, self.shape)
    fractions = staging_buffer(context, mantissa, compute_type(self.dtype))
    x = staging_buffer(context, self, compute_type(self.dtype))
    return staged_call(partial(np.frexp, x.buffer, fractions.buffer, exponent), [x], [fractions])
