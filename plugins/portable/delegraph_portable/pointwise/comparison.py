"""Comparisons, logical and bitwise operations, and choices by a mask."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import as_array, ufunc_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import BOOL, check_kind, is_integral, result_type
from delegraph.runtime.numpy_kernels.shapes import broadcast

from ..library import broadcast_out, kernel, prepare_out

Operand = Array | Scalar

_COMPARISONS: Final[dict[str, tuple[str, np.ufunc]]] = {
    "eq": ("bifc8", np.equal),
    "ge": ("bif", np.greater_equal),
    "gt": ("bif", np.greater),
    "le": ("bif", np.less_equal),
    "lt": ("bif", np.less),
    "ne": ("bifc8", np.not_equal),
}
"""Operator -> the kinds that the operands' common dtype may be of (see `check_kind`), and NumPy's function."""

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
_SHIFTS: Final[dict[str, np.ufunc]] = {
    "aten::__lshift__.Scalar_out": np.left_shift,
    "aten::__lshift__.Tensor_out": np.left_shift,
    "aten::__rshift__.Scalar_out": np.right_shift,
    "aten::__rshift__.Tensor_out": np.right_shift,
    "aten::bitwise_left_shift.Scalar_Tensor_out": np.left_shift,
    "aten::bitwise_left_shift.Tensor_Scalar_out": np.left_shift,
    "aten::bitwise_left_shift.Tensor_out": np.left_shift,
    "aten::bitwise_right_shift.Scalar_Tensor_out": np.right_shift,
    "aten::bitwise_right_shift.Tensor_Scalar_out": np.right_shift,
    "aten::bitwise_right_shift.Tensor_out": np.right_shift,
}


def _test(kinds: str, ufunc: np.ufunc, context: Context, self: Array, other: Operand, out: Array) -> BoundCall:
    dtype = result_type(self, other)
    check_kind(dtype, kinds)
    out = context.resize(out, broadcast(self.shape, np.shape(other)))
    return ufunc_call(ufunc, (self, as_array(other, dtype)), out, dtype, result=BOOL)


def _bitwise(ufunc: np.ufunc, context: Context, self: Operand, other: Operand, out: Array) -> BoundCall:
    dtype = result_type(self, other)
    if not is_integral(dtype):
        raise InvalidType(f"bitwise operations take integers and bool, but the operands' common dtype is {dtype}")
    return ufunc_call(ufunc, (self, other), broadcast_out(context, out, dtype, self, other), dtype)


def _shift(ufunc: np.ufunc, context: Context, self: Operand, other: Operand, out: Array) -> BoundCall:
    check_kind(result_type(self, other), "i")
    return _bitwise(ufunc, context, self, other, out)


for _name, (_kinds, _ufunc) in _COMPARISONS.items():
    kernel(f"aten::{_name}.Tensor_out", f"aten::{_name}.Scalar_out")(partial(_test, _kinds, _ufunc))
for _name, _ufunc in _LOGICAL.items():
    kernel(f"aten::{_name}.out")(partial(_test, "bifc", _ufunc))
for _name, _ufunc in _BITWISE.items():
    for _overload in ("Tensor_out", "Scalar_out", "Scalar_Tensor_out"):
        kernel(f"aten::{_name}.{_overload}")(partial(_bitwise, _ufunc))
for _op, _ufunc in _SHIFTS.items():
    kernel(_op)(partial(_shift, _ufunc))


# ---- choices by a mask ------------------------------------------------------------------------------


def _check_mask(mask: Array, name: str) -> None:
    if mask.dtype not in (BOOL, np.uint8):
        raise InvalidType(f"argument {name!r} must be bool, but is {mask.dtype}")


@kernel("aten::where.self_out")
def where(context: Context, condition: Array, self: Array, other: Array, out: Array) -> BoundCall:
    _check_mask(condition, "condition")
    out = broadcast_out(context, out, result_type(self, other), condition, self, other)
    return partial(_choose, condition, self, other, out)


def _choose(mask: Array, chosen: Array, rest: Array, out: Array) -> None:
    np.copyto(out, rest, casting="unsafe")
    np.copyto(out, chosen, casting="unsafe", where=mask.view(BOOL) if mask.dtype == BOOL else mask != 0)


@kernel("aten::masked_fill.Scalar_out")
def masked_fill(context: Context, self: Array, mask: Array, value: Scalar, out: Array) -> BoundCall:
    _check_mask(mask, "mask")
    out = broadcast_out(context, out, self.dtype, self, mask)
    return partial(_choose, mask, as_array(value, self.dtype), self, out)


@kernel("aten::tril.out")
def tril(context: Context, self: Array, diagonal: int, out: Array) -> BoundCall:
    """The lower triangle of each matrix, up to the `diagonal`-th diagonal, and 0 above."""
    if self.ndim < 2:
        raise InvalidArgument(f"argument 'self' must have at least 2 dimensions, but has shape {self.shape}")
    out = prepare_out(context, out, self.dtype, self.shape)
    return partial(
        _choose, np.tri(self.shape[-2], self.shape[-1], diagonal, dtype=BOOL), self, np.zeros((), self.dtype), out
    )
