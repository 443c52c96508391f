"""Elementwise functions of one tensor, one table row each: result type, then NumPy's function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from delegraph.runtime.kernels import BoundCall

from .error_function import erf
from .evaluate import function_call, ufunc_call
from .library import Array, Context, kernel
from .promotion import BOOL, DType, check_result, compute_type, float_type, real_type

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
    "neg": (same_type, np.negative),
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
_TESTS: Final[dict[str, np.ufunc]] = {"isinf": np.isinf, "isnan": np.isnan}


def rsqrt(x: Array, out: Array) -> None:
    np.sqrt(x, out)
    np.reciprocal(out, out)


def sigmoid(x: Array, out: Array) -> None:
    """1 / (1 + exp(-x)): relative accuracy at both ends, which a form through tanh would lose."""
    np.negative(x, out)
    np.exp(out, out)
    np.add(out, 1, out)
    np.reciprocal(out, out)


def sign(x: Array, out: Array) -> None:
    """-1, 0 or 1; 0 for NaN."""
    np.sign(x, out)
    if out.dtype.kind == "f":
        np.nan_to_num(out, copy=False)


_FUNCTIONS: Final[dict[str, tuple[TypeRule, Callable[[Array, Array], object]]]] = {
    "erf": (float_type, erf),
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


def _apply_test(ufunc: np.ufunc, context: Context, self: Array, out: Array) -> BoundCall:
    return ufunc_call(ufunc, (self,), context.resize(out, self.shape), float_type(self.dtype), result=BOOL)


for _name, (_rule, _ufunc) in _UFUNCS.items():
    kernel(f"aten::{_name}.out")(partial(_apply_ufunc, _rule, _ufunc))
for _name, (_rule, _function) in _FUNCTIONS.items():
    kernel(f"aten::{_name}.out")(partial(_apply_function, _rule, _function))
for _name, _ufunc in _TESTS.items():
    kernel(f"aten::{_name}.out")(partial(_apply_test, _ufunc))


@kernel("aten::abs.out")
def abs_out(context: Context, self: Array, out: Array) -> BoundCall:
    check_result(real_type(self.dtype), out)
    out = context.resize(out, self.shape)
    return ufunc_call(np.absolute, (self,), out, self.dtype, result=compute_type(real_type(self.dtype)))


@kernel("aten::logical_not.out")
def logical_not(context: Context, self: Array, out: Array) -> BoundCall:
    return ufunc_call(np.logical_not, (self,), context.resize(out, self.shape), self.dtype, result=BOOL)
