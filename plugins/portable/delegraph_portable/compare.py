"""Comparisons, logical and bitwise operations, and choices by a mask."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.runtime.kernels import BoundCall

from .evaluate import as_array, ufunc_call
from .library import Array, Context, Scalar, kernel
from .promotion import BOOL, check_result, is_integral, result_type
from .shapes import broadcast

Operand = Array | Scalar

_COMPARISONS: Final[dict[str, np.ufunc]] = {
    "eq": np.equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
    "ne": np.not_equal,
}
_LOGICAL: Final[dict[str, np.ufunc]] = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
_BITWISE: Final[dict[str, np.ufunc]] = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}
_SHIFTS: Final[dict[str, np.ufunc]] = {"bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift}


def _shape(operand: Operand) -> tuple[int, ...]:
    return operand.shape if isinstance(operand, np.ndarray) else ()


def _test(ufunc: np.ufunc, context: Context, self: Array, other: Operand, out: Array) -> BoundCall:
    out = context.resize(out, broadcast(self.shape, _shape(other)))
    return ufunc_call(ufunc, (self, other), out, result_type(self, other), result=BOOL)


def _bitwise(ufunc: np.ufunc, context: Context, self: Array, other: Operand, out: Array) -> BoundCall:
    dtype = result_type(self, other)
    if not is_integral(dtype):
        raise InvalidType(f"bitwise operations take integers and bool, but the operands' common dtype is {dtype}")
    check_result(dtype, out)
    return ufunc_call(ufunc, (self, other), context.resize(out, broadcast(self.shape, _shape(other))), dtype)


for _name, _ufunc in _COMPARISONS.items():
    kernel(f"aten::{_name}.Tensor_out", f"aten::{_name}.Scalar_out")(partial(_test, _ufunc))
for _name, _ufunc in _LOGICAL.items():
    kernel(f"aten::{_name}.out")(partial(_test, _ufunc))
for _name, _ufunc in _BITWISE.items():
    kernel(f"aten::{_name}.Tensor_out", f"aten::{_name}.Scalar_out")(partial(_bitwise, _ufunc))
for _name, _ufunc in _SHIFTS.items():
    kernel(f"aten::{_name}.Tensor_out", f"aten::{_name}.Tensor_Scalar_out")(partial(_bitwise, _ufunc))


# ---- choices by a mask ------------------------------------------------------------------------------


def _check_mask(mask: Array, name: str) -> None:
    if mask.dtype not in (BOOL, np.uint8):
        raise InvalidType(f"argument {name!r} must be bool, but is {mask.dtype}")


@kernel("aten::where.self_out")
def where(context: Context, condition: Array, self: Array, other: Array, out: Array) -> BoundCall:
    _check_mask(condition, "condition")
    check_result(result_type(self, other), out)
    out = context.resize(out, broadcast(condition.shape, self.shape, other.shape))
    return partial(_choose, condition, self, other, out)


def _choose(mask: Array, chosen: Array, rest: Array, out: Array) -> None:
    np.copyto(out, rest, casting="unsafe")
    np.copyto(out, chosen, casting="unsafe", where=mask.view(BOOL) if mask.dtype == BOOL else mask != 0)


@kernel("aten::masked_fill.Scalar_out")
def masked_fill(context: Context, self: Array, mask: Array, value: Scalar, out: Array) -> BoundCall:
    _check_mask(mask, "mask")
    check_result(self.dtype, out)
    out = context.resize(out, broadcast(self.shape, mask.shape))
    return partial(_choose, mask, as_array(value, self.dtype), self, out)


@kernel("aten::tril.out")
def tril(context: Context, self: Array, diagonal: int, out: Array) -> BoundCall:
    """The lower triangle of each matrix, up to the `diagonal`-th diagonal, and 0 above."""
    if self.ndim < 2:
        raise InvalidArgument(f"argument 'self' must have at least 2 dimensions, but has shape {self.shape}")
    check_result(self.dtype, out)
    out = context.resize(out, self.shape)
    return partial(
        _choose, np.tri(self.shape[-2], self.shape[-1], diagonal, dtype=BOOL), self, np.zeros((), self.dtype), out
    )
