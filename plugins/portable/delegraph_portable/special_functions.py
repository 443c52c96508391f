"""Special functions of one and two tensors: the table of their kernels.

They are computed in float64, whatever the dtype, and rounded once: most lose digits in their own dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.runtime.kernels import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import as_array, function_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import FLOAT64, check_kind, check_result, float_type, result_type
from delegraph.runtime.numpy_kernels.shapes import broadcast

from . import bessel_functions, gamma_functions
from .library import kernel
from .pointwise import error_function

_UNARY: Final[dict[str, Callable[[Array], Array]]] = {
    **bessel_functions.UNARY,
    "digamma": gamma_functions.digamma,
    "erfc": error_function.erfc,
    "erfinv": error_function.erfinv,
    "lgamma": gamma_functions.lgamma,
    "special_erfcx": error_function.erfcx,
    "special_ndtri": error_function.ndtri,
}
_BINARY: Final[dict[str, tuple[str, Callable[[Array, Array], Array]]]] = {
    "aten::igamma.out": ("f", gamma_functions.igamma),
    "aten::igammac.out": ("f", gamma_functions.igammac),
    "aten::special_zeta.other_scalar_out": ("bif", gamma_functions.zeta),
    "aten::special_zeta.out": ("bif", gamma_functions.zeta),
    "aten::special_zeta.self_scalar_out": ("bif", gamma_functions.zeta),
}
"""Operator -> the kinds that the operands' common dtype may be of (see `check_kind`), and the function."""


def _unary(function: Callable[[Array], Array], context: Context, self: Array, out: Array) -> BoundCall:
    check_kind(self.dtype, "bif")
    check_result(float_type(self.dtype), out)
    out = context.resize(out, self.shape)
    return function_call(context, partial(_flat, function), (self,), out, FLOAT64)


def _binary(
    kinds: str,
    function: Callable[[Array, Array], Array],
    context: Context,
    self: Array | Scalar,
    other: Array | Scalar,
    out: Array,
) -> BoundCall:
    dtype = result_type(self, other)
    check_kind(dtype, kinds)
    check_result(float_type(dtype), out)
    operands = (as_array(self, FLOAT64), as_array(other, FLOAT64))
    out = context.resize(out, broadcast(*(operand.shape for operand in operands)))
    return function_call(context, partial(_flat, function), operands, out, FLOAT64)


def _flat(function: Callable[..., Array], *operands: Array) -> None:
    """`function` of the operands, broadcast to the last of them, which takes the result, in one dim."""
    *inputs, out = operands
    flat = (np.broadcast_to(x, out.shape).reshape(-1) for x in inputs)
    np.copyto(out, function(*flat).reshape(out.shape))


for _name, _function in _UNARY.items():
    kernel(f"aten::{_name}.out")(partial(_unary, _function))
for _op, (_kinds, _pair_function) in _BINARY.items():
    kernel(_op)(partial(_binary, _kinds, _pair_function))


@kernel("aten::polygamma.out")
def polygamma(context: Context, n: int, self: Array, out: Array) -> BoundCall:
    """The n-th derivative of digamma."""
    if n < 0:
        raise InvalidArgument(f"argument 'n' must not be negative, but is {n}")
    return _unary(partial(gamma_functions.polygamma, n), context, self, out)
