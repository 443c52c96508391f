"""`executorch_prim::*` and the three ATen operators that give scalars: the runtime's own 28 operators.

Semantics, quirks included, are those of ExecuTorch's `kernels/prim_ops/register_prim_ops.cpp`: `mod` and `floordiv.int`
are C++'s `%` and `/` (the sign of the dividend, towards zero), `ceil`, `round` and `trunc` take doubles only, `sym_max`
and `sym_min` ints only, `round` goes half to even. Ints are C++'s `int64_t`: results wrap, as two's complement does,
and a double beyond them, whose conversion C++ leaves open, is an error. They compute symbolic shapes and loop counters.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces.kernel import KernelContext
from delegraph.lazy_dataclass import dataclass
from delegraph.runtime.values.values import Array, Shape

_Function: TypeAlias = Callable[..., object]
_Comparison: TypeAlias = Callable[[float, float], bool]


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """A function of `arity` values. Its result replaces the value that stands after them in the call."""

    arity: int
    function: _Function


def _of(*types: type) -> Callable[[_Function], _Function]:
    """Admit arguments of exactly these types: a bool is no int."""

    def decorate(function: _Function) -> _Function:
        def checked(*args: object) -> object:
            if any(type(arg) not in types for arg in args):
                got = ", ".join(type(arg).__name__ for arg in args)
                raise InvalidType(f"takes {' or '.join(t.__name__ for t in types)}, got {got}")
            return function(*args)

        return checked

    return decorate


def _wrapping(function: _Function) -> _Function:
    """`function`, with an int result brought into 64 bits."""

    return lambda *args: _wrapped(function(*args))


def _wrapped(number: object) -> object:
    return _in_64_bits(number) if type(number) is int else number


def _in_64_bits(number: int) -> int:
    return number if _LEAST <= number <= _MOST else (number - _LEAST) % 2**64 + _LEAST


_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1


def _as_doubles(compare: _Comparison) -> _Comparison:
    """`compare`, in which an int beside a double becomes one first, and is rounded."""

    def compared(a: float, b: float) -> bool:
        return compare(a, b) if type(a) is type(b) else compare(float(a), float(b))

    return compared


def _to_int(function: Callable[[float], float]) -> Callable[[float], int]:
    """The result of `function` as an int. Raises `InvalidArgument` if it does not fit into 64 bits."""

    def converted(value: float) -> int:
        if not -(2.0**63) <= value < 2.0**63:  # NaN neither
            raise InvalidArgument(f"{value!r} is not within the range of 64-bit integers")
        return int(function(value))

    return converted


_number = _of(int, float)
_integer = _of(int)
_double = _of(float)
_number_or_bool = _of(int, float, bool)


def _divide(a: float, b: float) -> float:
    """IEEE division: by zero gives an infinity or NaN."""
    with np.errstate(all="ignore"):
        return float(np.float64(a) / np.float64(b))


def _floor_divide(a: float, b: float) -> int | float:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 0:
        return math.copysign(math.inf, a)
    return float(a) // float(b)


def _truncating_quotient(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _truncating_remainder(a: int, b: int) -> int:
    return a - b * _truncating_quotient(a, b)


def _sym_int(value: float) -> int:
    return _to_int(math.trunc)(value) if isinstance(value, float) else int(value)


def _size(tensor: Array, dim: int) -> int:
    _require_tensor(tensor)
    if type(dim) is not int:
        raise InvalidType(f"takes an int as dim, got {type(dim).__name__}")
    if not -tensor.ndim <= dim < tensor.ndim:
        raise InvalidArgument(f"dim {dim} of a tensor with {tensor.ndim} dims")
    size: int = tensor.shape[dim]
    return size


def _numel(tensor: Array) -> int:
    _require_tensor(tensor)
    return tensor.size


def _require_tensor(value: object) -> None:
    if not isinstance(value, np.ndarray):
        raise InvalidType(f"takes a tensor, got {type(value).__name__}")


def _only_element(tensor: Array) -> int | float | bool:
    _require_tensor(tensor)
    if tensor.dtype.kind == "c":
        raise InvalidType(f"takes a tensor of real numbers, got {tensor.dtype}")
    if tensor.size == 0:
        raise InvalidArgument("the tensor has no element")
    value: int | float | bool = tensor.reshape(-1)[0].item()
    return _in_64_bits(value) if type(value) is int else value


def _choose(condition: bool, yes: object, no: object) -> object:
    if type(condition) is not bool:
        raise InvalidType(f"takes a bool as condition, got {type(condition).__name__}")
    return yes if condition else no


LOCAL_SCALAR_DENSE: Final = "aten::_local_scalar_dense"
"""The only scalar operator that reads a tensor's content."""

OF_SHAPE: Final = frozenset({"aten::sym_size.int", "aten::sym_numel"})
"""Those that look at a tensor's shape."""

SCALAR_OPS: Final[dict[str, ScalarOp]] = {
    "aten::sym_size.int": ScalarOp(2, _size),
    "aten::sym_numel": ScalarOp(1, _numel),
    LOCAL_SCALAR_DENSE: ScalarOp(1, _only_element),
    "executorch_prim::add.Scalar": ScalarOp(2, _number(_wrapping(operator.add))),
    "executorch_prim::sub.Scalar": ScalarOp(2, _number(_wrapping(operator.sub))),
    "executorch_prim::mul.Scalar": ScalarOp(2, _number(_wrapping(operator.mul))),
    "executorch_prim::floordiv.Scalar": ScalarOp(2, _number(_wrapping(_floor_divide))),
    "executorch_prim::floordiv.int": ScalarOp(2, _integer(_wrapping(_truncating_quotient))),
    "executorch_prim::truediv.Scalar": ScalarOp(2, _number(_divide)),
    "executorch_prim::mod.Scalar": ScalarOp(2, _integer(_truncating_remainder)),
    "executorch_prim::mod.int": ScalarOp(2, _integer(_truncating_remainder)),
    "executorch_prim::neg.Scalar": ScalarOp(1, _number(_wrapping(operator.neg))),
    "executorch_prim::ceil.Scalar": ScalarOp(1, _double(_to_int(math.ceil))),
    "executorch_prim::round.Scalar": ScalarOp(1, _double(_to_int(round))),
    "executorch_prim::trunc.Scalar": ScalarOp(1, _double(_to_int(math.trunc))),
    "executorch_prim::sym_float.Scalar": ScalarOp(1, _number_or_bool(float)),
    "executorch_prim::sym_int.Scalar": ScalarOp(1, _number_or_bool(_sym_int)),
    "executorch_prim::sym_max.Scalar": ScalarOp(2, _integer(max)),
    "executorch_prim::sym_min.Scalar": ScalarOp(2, _integer(min)),
    "executorch_prim::sym_not.Scalar": ScalarOp(1, _of(bool)(operator.not_)),
    "executorch_prim::sym_ite.Scalar": ScalarOp(3, _choose),
    "executorch_prim::eq.Scalar": ScalarOp(2, _number_or_bool(_as_doubles(operator.eq))),
    "executorch_prim::gt.Scalar": ScalarOp(2, _number_or_bool(_as_doubles(operator.gt))),
    "executorch_prim::lt.Scalar": ScalarOp(2, _number_or_bool(_as_doubles(operator.lt))),
    "executorch_prim::ge.Scalar": ScalarOp(2, _number_or_bool(_as_doubles(operator.ge))),
    "executorch_prim::le.Scalar": ScalarOp(2, _number_or_bool(_as_doubles(operator.le))),
}


def et_copy_index(context: KernelContext, copy_to: Array, copy_from: Array, index: int) -> None:
    """Make `copy_from` the row `index` of `copy_to`, which then has `index + 1` rows; the earlier ones stay."""
    _require_tensor(copy_to)
    _require_tensor(copy_from)
    if type(index) is not int:
        raise InvalidType(f"takes an int as index, got {type(index).__name__}")
    if index < 0:
        raise InvalidArgument(f"index {index} is negative")
    rows = context.resize(copy_to, (index + 1, *copy_from.shape))
    rows[index] = copy_from


def view_shape(tensor: Array, sizes: Sequence[int]) -> Shape:
    """`sizes` with a -1 replaced by the size that keeps the number of elements. Raises `InvalidArgument`."""
    shape = tuple(sizes)
    if shape.count(-1) == 1:
        known = -math.prod(shape)
        if known > 0:
            shape = tuple(tensor.size // known if size == -1 else size for size in shape)
    if min(shape, default=0) < 0 or math.prod(shape) != tensor.size:
        raise InvalidArgument(f"a tensor of shape {list(tensor.shape)} cannot be viewed as {list(sizes)}")
    return shape
