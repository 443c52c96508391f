"""Elementwise functions of one tensor, one table row each: result type, then NumPy's function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from delegraph.errors import InvalidType
from delegraph.runtime.kernels import BoundCall

from .error_function import erf
from .evaluate import function_call, ufunc_call
from .library import Array, Context, kernel
from .promotion import BOOL, DType, check_result, compute_type, float_type, is_floating, real_type

TypeRule = Callable[[DType], DType]
"""The dtype of the operand -> the dtype of the result."""


def same_type(dtype: DType) -> DType:
    return dtype


_UFUNCS: Final[dict[str, tuple[TypeRule, np.ufunc]]] = {
    "acos": (float_type, np.arccos),
    "acosh": (float_type, np.arccosh),
    "asin": (float_type, np.arcsin),
    "asinh": (float_type, np.arcsinh),
    "atan": (float_type, np.arctan),
    "atanh": (float_type, np.arctanh),
    "bitwise_not": (same_type, np.invert),
    "ceil": (same_type, np.ceil),
    "cos": (float_type, np.cos),
    "cosh": (float_type, np.cosh),
    "exp": (float_type, np.exp),
    "expm1": (float_type, np.expm1),
    "floor": (same_type, np.floor),
    "log": (float_type, np.log),
    "log10": (float_type, np.log10),
    "log1p": (float_type, np.log1p),
    "log2": (float_type, np.log2),
    "reciprocal": (float_type, np.reciprocal),
    "round": (same_type, np.rint),  # half to even
    "sin": (float_type, np.sin),
    "sinh": (float_type, np.sinh),
    "sqrt": (float_type, np.sqrt),
    "tan": (float_type, np.tan),
    "tanh": (float_type, np.tanh),
    "trunc": (same_type, np.trunc),
    "_conj_physical": (same_type, np.conjugate),
}
_INTEGERS_STAY: Final = {np.ceil, np.floor, np.rint, np.trunc}


def rsqrt(x: Array, out: Array) -> None:
    np.sqrt(x, out)
    np.reciprocal(out, out)


def sigmoid(x: Array, out: Array) -> None:
    """1 / (1 + 1 / exp(x)): relative accuracy at both ends, which a form through tanh would lose."""
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


_FUNCTIONS: Final[dict[str, tuple[TypeRule, Callable[[Array, Array], object]]]] = {
    "rsqrt": (float_type, rsqrt),
    "sigmoid": (float_type, sigmoid),
    "sign": (same_type, sign),
}


def _apply_ufunc(rule: TypeRule, ufunc: np.ufunc, context: Context, self: Array, out: Array) -> BoundCall:
    result = rule(self.dtype)
    check_result(result, out)
    out = context.resize(out, self.shape)
    if ufunc in _INTEGERS_STAY and result.kind in "iu":
        ufunc = np.positive
    return ufunc_call(ufunc, (self,), out, result)


def _apply_function(
    rule: TypeRule, function: Callable[[Array, Array], object], context: Context, self: Array, out: Array
) -> BoundCall:
    result = rule(self.dtype)
    check_result(result, out)
    out = context.resize(out, self.shape)
    return function_call(context, function, (self,), out, compute_type(result))


for _name, (_rule, _ufunc) in _UFUNCS.items():
    kernel(f"aten::{_name}.out")(partial(_apply_ufunc, _rule, _ufunc))
for _name, (_rule, _function) in _FUNCTIONS.items():
    kernel(f"aten::{_name}.out")(partial(_apply_function, _rule, _function))


@kernel("aten::abs.out")
def abs_out(context: Context, self: Array, out: Array) -> BoundCall:
    check_result(real_type(self.dtype), out)
    out = context.resize(out, self.shape)
    return ufunc_call(np.absolute, (self,), out, self.dtype, result=compute_type(real_type(self.dtype)))


@kernel("aten::erf.out")
def erf_out(context: Context, self: Array, out: Array) -> BoundCall:
    dtype = float_type(self.dtype)
    check_result(dtype, out)
    out = context.resize(out, self.shape)
    compute = compute_type(dtype)
    return function_call(context, partial(erf, 1.0, context.workspace(self.shape, compute)), (self,), out, compute)


@kernel("aten::logical_not.out")
def logical_not(context: Context, self: Array, out: Array) -> BoundCall:
    return ufunc_call(np.logical_not, (self,), context.resize(out, self.shape), self.dtype, result=BOOL)


# NumPy 2.4's negative, isnan and isinf go wrong where neither side is contiguous: multiply and compare instead.


@kernel("aten::neg.out")
def neg(context: Context, self: Array, out: Array) -> BoundCall:
    if self.dtype == BOOL:
        raise InvalidType("negation is not defined for bool tensors; use logical_not")
    check_result(self.dtype, out)
    return ufunc_call(np.multiply, (self, -1), context.resize(out, self.shape), self.dtype)


@kernel("aten::isnan.out")
def isnan(context: Context, self: Array, out: Array) -> BoundCall:
    return ufunc_call(np.not_equal, (self, self), context.resize(out, self.shape), self.dtype, result=BOOL)


@kernel("aten::isinf.out")
def isinf(context: Context, self: Array, out: Array) -> BoundCall:
    out = context.resize(out, self.shape)
    if not is_floating(self.dtype):
        return partial(out.fill, False)
    return lambda: np.copyto(out, np.absolute(self) == np.inf, casting="unsafe")
