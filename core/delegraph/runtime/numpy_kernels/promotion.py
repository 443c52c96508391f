"""Operands -> the dtype that torch computes their operation in (`torch.result_type`).

The rules (`c10/core/ScalarType.h`, `ATen/native/TypeProperties.cpp`): tensors with dimensions outrank 0-d tensors,
which outrank Python numbers; a lower rank only matters if its category (bool < integer < float < complex) is higher.
float16 and bfloat16 are computed in float32 and rounded once.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.program.dtypes import numpy_dtype
from delegraph.program.schema import ScalarType
from delegraph.runtime.numpy_kernels.prepared import Array, Scalar

__all__ = [
    "BOOL",
    "FLOAT32",
    "FLOAT64",
    "INT64",
    "DType",
    "category",
    "check_floating",
    "check_index",
    "check_kind",
    "check_one_of",
    "check_result",
    "check_same_dtype",
    "check_same_kind",
    "compute_type",
    "float_type",
    "is_complex",
    "is_float8",
    "is_floating",
    "is_integral",
    "is_wide_unsigned",
    "promote",
    "real_type",
    "requested_type",
    "result_type",
    "sum_type",
]

DType = np.dtype[Any]
"""A NumPy dtype, or one of ml_dtypes."""

BOOL: Final = np.dtype(np.bool_)
"""bool."""

INT64: Final = np.dtype(np.int64)
"""int64, torch's default of integers."""

FLOAT32: Final = np.dtype(np.float32)
"""float32, torch's default of floats."""

FLOAT64: Final = np.dtype(np.float64)
"""float64."""

_BOOL, _INTEGER, _FLOAT, _COMPLEX = range(4)
_CATEGORY_OF_KIND: Final = {"b": _BOOL, "i": _INTEGER, "u": _INTEGER, "f": _FLOAT, "c": _COMPLEX}
_PYTHON_DTYPES: Final[dict[type, DType]] = {
    bool: BOOL,
    int: INT64,
    float: FLOAT32,  # torch's default dtype
    complex: np.dtype(np.complex64),
}


@cache
def category(dtype: DType) -> int:
    """0 bool, 1 integer, 2 float, 3 complex. NumPy knows no kind of bfloat16 and float8: they are the rest."""
    return _CATEGORY_OF_KIND.get(dtype.kind, _FLOAT)


def is_floating(dtype: DType) -> bool:
    """Whether `dtype` is a float, one of ml_dtypes included."""
    return category(dtype) == _FLOAT


def is_complex(dtype: DType) -> bool:
    """Whether `dtype` is complex64 or complex128."""
    return category(dtype) == _COMPLEX


def is_integral(dtype: DType) -> bool:
    """Whether `dtype` is bool or an integer."""
    return category(dtype) <= _INTEGER


@cache
def is_float8(dtype: DType) -> bool:
    """Whether `dtype` is one of ml_dtypes' floats of eight bits."""
    return dtype.itemsize == 1 and category(dtype) == _FLOAT


def is_wide_unsigned(dtype: DType) -> bool:
    """Whether `dtype` is uint16, uint32 or uint64, which torch promotes with floats only."""
    return dtype.kind == "u" and dtype.itemsize > 1


@cache
def promote(a: DType, b: DType) -> DType:
    """`torch.promote_types`. Raises `InvalidType` where torch has no common type."""
    if a == b:
        return a
    for left, right in ((a, b), (b, a)):
        if is_float8(left) or (is_wide_unsigned(left) and not is_floating(right)):
            common = "common integer type" if is_integral(a) and is_integral(b) else "common type"
            raise InvalidType(f"{a} and {b} have no {common}; convert one of them before")
    low, high = sorted((a, b), key=category)
    if category(low) != category(high):
        return np.promote_types(low, high) if is_complex(high) and is_floating(low) and low.itemsize > 2 else high
    if is_floating(a):
        if a.itemsize == b.itemsize:  # float16 with bfloat16
            return FLOAT32
        return a if a.itemsize > b.itemsize else b
    return np.promote_types(a, b)


def result_type(*operands: Array | Scalar) -> DType:
    """The dtype of an operation on these tensors and Python numbers."""
    ranks: list[DType | None] = [None, None, None]
    for operand in operands:
        if isinstance(operand, np.ndarray):
            rank, dtype = (0 if operand.ndim else 1), operand.dtype
        else:
            rank, dtype = 2, _PYTHON_DTYPES[type(operand)]
        known = ranks[rank]
        ranks[rank] = dtype if known is None else promote(known, dtype)
    result: DType | None = None
    for lower in ranks:
        if result is None:
            result = lower
        elif lower is not None and category(lower) > category(result):
            result = _complex_type(result, lower) if is_complex(lower) else promote(result, lower)
    assert result is not None
    return result


def _complex_type(result: DType, lower: DType) -> DType:
    """Of floats with complex numbers of a lower rank: complex numbers as wide as the floats."""
    if is_integral(result) or result.itemsize < 4:
        return promote(result, lower) if is_float8(result) else lower
    return np.dtype(f"c{2 * result.itemsize}")


def float_type(dtype: DType) -> DType:
    """`dtype`, or float32 for integers and bool: the dtype of torch's true division and transcendental functions."""
    return FLOAT32 if is_integral(dtype) else dtype


def sum_type(dtype: DType) -> DType:
    """`dtype`, or int64 for integers and bool: the dtype of torch's sums and products."""
    return INT64 if is_integral(dtype) else dtype


@cache
def compute_type(dtype: DType) -> DType:
    """The dtype to compute `dtype` in: float32 for the floats below it, else itself."""
    return FLOAT32 if is_floating(dtype) and dtype.itemsize < 4 else dtype


def requested_type(code: int | None, default: DType) -> DType:
    """The dtype of a `ScalarType` argument, or `default` where it is None."""
    return default if code is None else numpy_dtype(ScalarType(code))


def real_type(dtype: DType) -> DType:
    """float32 of complex64, float64 of complex128; others as they are."""
    return np.dtype(f"f{dtype.itemsize // 2}") if is_complex(dtype) else dtype


def check_result(dtype: DType, out: Array, name: str = "out") -> None:
    """Raise `InvalidType` if a result of `dtype` may not be cast to `out`'s dtype (torch's `canCast`)."""
    if category(dtype) > category(out.dtype):
        raise InvalidType(f"the result has dtype {dtype}, which cannot be cast to the {out.dtype} of argument {name!r}")


_KINDS: Final = ("b", "i", "f", "c")
_KIND_NAMES: Final = {"b": "bool", "i": "integer", "f": "floating-point", "c": "complex", "8": "float8"}


@cache
def check_kind(dtype: DType, kinds: str, name: str = "self") -> None:
    """Raise `InvalidType` unless `dtype` is of one of `kinds`: b(ool), i(nteger), f(loat), c(omplex), float8 (8)."""
    kind = "8" if is_float8(dtype) else _KINDS[category(dtype)]
    if kind not in kinds:
        allowed = " or ".join(_KIND_NAMES[k] for k in kinds)
        raise InvalidType(f"argument {name!r} must be {allowed}, but is {dtype}")


def check_floating(array: Array, name: str) -> None:
    """Raise `InvalidType` unless the argument is a floating-point tensor, and none of float8."""
    check_kind(array.dtype, "f", name)


def check_index(array: Array, name: str) -> None:
    """Raise `InvalidType` unless the argument is an integer tensor."""
    if category(array.dtype) != _INTEGER:
        raise InvalidType(f"argument {name!r} must hold integers, but is {array.dtype}")


def check_same_dtype(array: Array, name: str, other: Array, other_name: str) -> None:
    """Raise `InvalidType` unless both arguments have one dtype."""
    if array.dtype != other.dtype:
        raise InvalidType(f"argument {name!r} is {array.dtype}, but argument {other_name!r} is {other.dtype}")


def check_same_kind(array: Array, name: str, other: Array, other_name: str) -> None:
    """Raise `InvalidType` unless both arguments are bool, integers, floats or complex."""
    if category(array.dtype) != category(other.dtype):
        raise InvalidType(f"argument {name!r} is {array.dtype}, but argument {other_name!r} is {other.dtype}")


def check_one_of(value: object, name: str, allowed: tuple[object, ...]) -> None:
    """Raise `InvalidArgument` unless `value` is one of `allowed`."""
    if value not in allowed:
        raise InvalidArgument(f"argument {name!r} must be one of {', '.join(map(repr, allowed))}, but is {value!r}")
