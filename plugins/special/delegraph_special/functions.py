"""Special functions of one and two tensors: the table of their kernels.

scipy.special computes them in float64, whatever the dtype, and they are rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import as_array, function_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import FLOAT64, check_kind, check_result, float_type, result_type
from delegraph.runtime.numpy_kernels.shapes import broadcast

from .library import kernel, scipy_special

Function = Callable[..., Array]
"""(scipy.special, *operands) -> values."""


def _named(name: str) -> Function:
    """SciPy's function `name`."""
    return lambda sp, *operands: getattr(sp, name)(*operands)


def _lgamma(sp: ModuleType, x: Array) -> Array:
    """inf at -inf as well, as in torch. Near its zeros, 1 and 2, by SciPy's function for complex numbers, which has
    a Taylor series there, while `gammaln` loses all digits. Of denormal numbers, whose gamma function overflows in
    `gammaln`, by its pole: -log|x|."""
    near = np.minimum(np.abs(x - 1), np.abs(x - 2)) < 0.2
    values = np.where(near, sp.loggamma(np.where(near, x, 1) + 0j).real, sp.gammaln(x))
    values = np.where(np.abs(x) < np.finfo(np.float64).tiny, -np.log(np.abs(x)), values)
    return np.where(np.isneginf(x), np.inf, values) + 0.0  # the zeros are 0.0, and -0.0 in SciPy


def _erfinv(sp: ModuleType, x: Array) -> Array:
    """-0.0 of -0.0, as in torch."""
    return np.where(x == 0, x, sp.erfinv(x))


def _incomplete_gamma(name: str, at_zero: float) -> Function:
    """SciPy's function `name`, which is `at_zero` for x = 0. torch asks for 0 and infinity before it asks for NaN."""

    def function(sp: ModuleType, a: Array, x: Array) -> Array:
        values = np.where(np.isposinf(a) & np.isnan(x), at_zero, getattr(sp, name)(a, x))
        of_nan = np.where(x == 0, at_zero, np.where(np.isposinf(x), 1 - at_zero, np.nan))
        return np.where(np.isnan(a), of_nan, values)

    return function


def _spherical_j0(sp: ModuleType, x: Array) -> Array:
    value: Array = sp.spherical_jn(0, x)
    return value


_UNDERFLOW: Final = 110.0
"""Above it Ai is smaller than the smallest float64."""
_OSCILLATING: Final = -1e6
"""Below it the first term of Ai's expansion is as exact as the last digit of its phase lets any be."""


def _airy_ai(sp: ModuleType, x: Array) -> Array:
    """NaN at both infinities, as in torch. Beyond ±1e7, where SciPy has no values: 0, or a sine (DLMF 9.7.9)."""
    magnitude = np.maximum(-x, -_OSCILLATING)
    phase = 2 / 3 * magnitude * np.sqrt(magnitude) + np.pi / 4
    far = np.sin(phase) / np.sqrt(np.pi * np.sqrt(magnitude))
    values = np.where(x < _OSCILLATING, far, sp.airy(np.clip(x, _OSCILLATING, _UNDERFLOW))[0])
    return np.where(np.isinf(x), np.nan, values)


_UNARY: Final[dict[str, Function]] = {
    "digamma": _named("digamma"),
    "erfc": _named("erfc"),
    "erfinv": _erfinv,
    "i0": _named("i0"),
    "lgamma": _lgamma,
    "special_airy_ai": _airy_ai,
    "special_bessel_j0": _named("j0"),
    "special_bessel_j1": _named("j1"),
    "special_bessel_y0": _named("y0"),
    "special_bessel_y1": _named("y1"),
    "special_erfcx": _named("erfcx"),
    "special_i0e": _named("i0e"),
    "special_i1": _named("i1"),
    "special_i1e": _named("i1e"),
    "special_modified_bessel_i0": _named("i0"),
    "special_modified_bessel_i1": _named("i1"),
    "special_modified_bessel_k0": _named("k0"),
    "special_modified_bessel_k1": _named("k1"),
    "special_ndtri": _named("ndtri"),
    "special_scaled_modified_bessel_k0": _named("k0e"),
    "special_scaled_modified_bessel_k1": _named("k1e"),
    "special_spherical_bessel_j0": _spherical_j0,
}
_BINARY: Final[dict[str, tuple[str, Function]]] = {
    "aten::igamma.out": ("f", _incomplete_gamma("gammainc", 0.0)),
    "aten::igammac.out": ("f", _incomplete_gamma("gammaincc", 1.0)),
    "aten::special_zeta.other_scalar_out": ("bif", _named("zeta")),
    "aten::special_zeta.out": ("bif", _named("zeta")),
    "aten::special_zeta.self_scalar_out": ("bif", _named("zeta")),
}
"""Operator -> the kinds that the operands' common dtype may be of (see `check_kind`), and the function."""


def _unary(function: Function, context: Context, self: Array, out: Array) -> BoundCall:
    check_kind(self.dtype, "bif")
    check_result(float_type(self.dtype), out)
    out = context.resize(out, self.shape)
    return function_call(context, partial(_evaluate, partial(function, scipy_special())), (self,), out, FLOAT64)


def _binary(
    kinds: str, function: Function, context: Context, self: Array | Scalar, other: Array | Scalar, out: Array
) -> BoundCall:
    dtype = result_type(self, other)
    check_kind(dtype, kinds)
    check_result(float_type(dtype), out)
    operands = (as_array(self, FLOAT64), as_array(other, FLOAT64))
    out = context.resize(out, broadcast(*(operand.shape for operand in operands)))
    return function_call(context, partial(_evaluate, partial(function, scipy_special())), operands, out, FLOAT64)


def _evaluate(function: Callable[..., Array], *operands: Array) -> None:
    """`function` of all operands but the last, which takes the result."""
    *inputs, out = operands
    np.copyto(out, function(*inputs))


for _name, _function in _UNARY.items():
    kernel(f"aten::{_name}.out")(partial(_unary, _function))
for _op, (_kinds, _pair_function) in _BINARY.items():
    kernel(_op)(partial(_binary, _kinds, _pair_function))


@kernel("aten::polygamma.out")
def polygamma(context: Context, n: int, self: Array, out: Array) -> BoundCall:
    """The n-th derivative of digamma."""
    if n < 0:
        raise InvalidArgument(f"argument 'n' must not be negative, but is {n}")
    return _unary(lambda sp, x: sp.polygamma(n, x), context, self, out)
