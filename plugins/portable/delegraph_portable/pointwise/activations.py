"""Activation functions and softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import as_array, function_call, nothing, ufunc_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import (
    check_floating,
    check_kind,
    check_one_of,
    compute_type,
    float_type,
)
from delegraph.runtime.numpy_kernels.shapes import wrap_dim

from ..library import elementwise, kernel, prepare_out
from .error_function import erf


@kernel("aten::relu.out")
def relu(context: Context, self: Array, out: Array) -> BoundCall:
    check_kind(self.dtype, "if")
    return ufunc_call(np.maximum, (self, 0), prepare_out(context, out, self.dtype, self.shape), self.dtype)


@kernel("aten::hardtanh.out")
def hardtanh(context: Context, self: Array, min_val: Scalar, max_val: Scalar, out: Array) -> BoundCall:
    from .arithmetic import clamp  # which a program of `relu` does without, as `sigmoid` below

    # The bounds take the tensor's dtype, whatever theirs.
    low, high = (np.asarray(bound).astype(self.dtype) for bound in (min_val, max_val))
    return clamp(context, self, low, high, out)


@kernel("aten::leaky_relu.out")
def leaky_relu(context: Context, self: Array, negative_slope: Scalar, out: Array) -> BoundCall:
    check_floating(self, "self")
    function = partial(_leaky_relu, as_array(negative_slope, compute_type(self.dtype)))
    return elementwise(context, function, (self,), out, self.dtype)


def _leaky_relu(slope: Array, x: Array, out: Array) -> None:
    positive = x > 0
    np.multiply(x, slope, out)
    np.copyto(out, x, where=positive)


@kernel("aten::elu.out")
def elu(context: Context, self: Array, alpha: Scalar, scale: Scalar, input_scale: Scalar, out: Array) -> BoundCall:
    check_floating(self, "self")
    compute = compute_type(self.dtype)
    factors = (as_array(factor, compute) for factor in (alpha, scale, input_scale))
    return elementwise(context, partial(_elu, *factors), (self,), out, self.dtype)


def _elu(alpha: Array, scale: Array, input_scale: Array, x: Array, out: Array) -> None:
    """scale * x above 0, else scale * alpha * (exp(input_scale * x) - 1)."""
    positive = x > 0
    linear = x * scale
    np.multiply(x, input_scale, out)
    np.expm1(out, out)
    np.multiply(out, alpha * scale, out)
    np.copyto(out, linear, where=positive)


@kernel("aten::gelu.out")
def gelu(context: Context, self: Array, approximate: str, out: Array) -> BoundCall:
    check_one_of(approximate, "approximate", ("none", "tanh"))
    check_floating(self, "self")
    scratch = context.workspace(self.shape, compute_type(self.dtype)) if approximate == "none" else None
    function = _gelu_tanh if scratch is None else partial(_gelu, scratch)
    return elementwise(context, function, (self,), out, self.dtype)


def _gelu(scratch: Array, x: Array, out: Array) -> None:
    """x Φ(x) = x/2 (1 + erf(x/√2))."""
    erf(math.sqrt(0.5), scratch, x, out)
    np.add(out, 1, out)
    np.multiply(out, 0.5, out)  # before x, twice which may be too large
    np.multiply(out, x, out)


def _gelu_tanh(x: Array, out: Array) -> None:
    """x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    np.square(x, out)
    np.multiply(out, 0.044715 * math.sqrt(2 / math.pi), out)
    np.add(out, math.sqrt(2 / math.pi), out)
    np.multiply(out, x, out)
    np.tanh(out, out)
    np.add(out, 1, out)
    np.multiply(out, 0.5, out)  # before x, twice which may be too large
    np.multiply(out, x, out)


@kernel("aten::glu.out")
def glu(context: Context, self: Array, dim: int, out: Array) -> BoundCall:
    """First half * sigmoid(second half) along `dim`."""
    check_floating(self, "self")
    dim = wrap_dim(dim, self.ndim)
    if self.ndim == 0 or self.shape[dim] % 2:
        raise InvalidArgument(f"argument 'self' of shape {self.shape} cannot be halved along dimension {dim}")
    first, second = np.split(self, 2, axis=dim)
    from .unary import sigmoid

    return elementwise(context, partial(_glu, sigmoid), (first, second), out, self.dtype)


def _glu(sigmoid: Callable[[Array, Array], object], first: Array, second: Array, out: Array) -> None:
    sigmoid(second, out)
    np.multiply(out, first, out)


@kernel("aten::logit.out")
def logit(context: Context, self: Array, eps: float | None, out: Array) -> BoundCall:
    check_kind(self.dtype, "bif")
    return elementwise(context, partial(_logit, eps), (self,), out, float_type(self.dtype))


def _logit(eps: float | None, x: Array, out: Array) -> None:
    """log(x / (1 - x)), of x held between eps and 1 - eps."""
    if eps is not None:
        x = np.minimum(np.maximum(x, x.dtype.type(eps)), x.dtype.type(1 - eps))
    np.subtract(1, x, out)
    np.divide(x, out, out)
    np.log(out, out)


# ---- softmax ----------------------------------------------------------------------------------------


def _softmax(axis: int, x: Array, out: Array) -> None:
    np.subtract(x, np.max(x, axis, keepdims=True), out)
    np.exp(out, out)
    np.divide(out, np.sum(out, axis, keepdims=True), out)


def _log_softmax(axis: int, x: Array, out: Array) -> None:
    np.subtract(x, np.max(x, axis, keepdims=True), out)
    np.subtract(out, np.log(np.sum(np.exp(out), axis, keepdims=True)), out)


_SOFTMAX: Final = {"aten::_softmax.out": _softmax, "aten::_log_softmax.out": _log_softmax}


def _along_dim(
    function: Callable[[int, Array, Array], None],
    context: Context,
    self: Array,
    dim: int,
    half_to_float: bool,
    out: Array,
) -> BoundCall:
    check_floating(self, "self")
    axis = wrap_dim(dim, self.ndim)
    out = prepare_out(context, out, self.dtype, self.shape)
    # A 0-d tensor has one row; an empty one has no maximum to take.
    rows, result = (self.reshape(1), out.reshape(1)) if self.ndim == 0 else (self, out)
    if self.size == 0:
        return nothing
    return function_call(context, partial(function, axis), (rows,), result, compute_type(self.dtype))


for _op, _function in _SOFTMAX.items():
    kernel(_op)(partial(_along_dim, _function))
