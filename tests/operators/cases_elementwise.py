"""Element by element: unary functions, arithmetic, comparisons, logic and bits, rounding, clamping, activations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from tests.operators.case import (
    ALL,
    COMMON,
    FLOATS,
    INTEGERS,
    NUMBERS,
    Case,
    by_dtype,
    call,
    channels_last,
    rounded_once,
    special,
    tensor,
)

aten = torch.ops.aten


# ---- one tensor ------------------------------------------------------------------------------------


def unary(name: str, dtypes: Sequence[str], low: float = -3.0, high: float = 3.0) -> Iterator[Case]:
    """Each dtype; then no element, one element, another layout and special values."""
    operator, target = f"aten::{name}.out", getattr(aten, name).default
    yield from by_dtype(operator, target, dtypes, lambda dtype: (tensor(3, 5, dtype=dtype, low=low, high=high),))
    yield call(operator, "0-d", target, tensor(low=low, high=high))
    yield call(operator, "empty", target, tensor(0, 3))
    yield call(operator, "channels_last", target, channels_last(2, 3, 4, 2).clamp(low, high))
    for dtype in ("float32", "float16"):
        if dtype in dtypes:
            yield call(operator, f"special values {dtype}", target, special(dtype))


_ANY_INPUT: tuple[tuple[str, float, float], ...] = (
    *(("acos", -1, 1), ("acosh", 1, 5), ("asin", -1, 1), ("asinh", -3, 3), ("atan", -3, 3), ("atanh", -0.9, 0.9)),
    *(("cos", -3, 3), ("cosh", -3, 3), ("erf", -3, 3), ("exp", -3, 3), ("expm1", -3, 3), ("isinf", -3, 3)),
    *(("isnan", -3, 3), ("log", 0.1, 5), ("log10", 0.1, 5), ("log1p", -0.5, 5), ("log2", 0.1, 5)),
    *(("logical_not", -1, 1), ("reciprocal", 0.5, 3), ("rsqrt", 0.5, 3), ("sigmoid", -3, 3), ("sin", -3, 3)),
    *(("sinh", -3, 3), ("sqrt", 0, 5), ("tan", -1, 1), ("tanh", -3, 3)),
    *(("abs", -3, 3), ("sign", -3, 3)),
)
"""Unary functions that torch has for every dtype, bool too, and a range of sensible inputs."""

_NUMBERS_ONLY = ("ceil", "floor", "trunc", "round", "neg", "relu")


def unary_cases() -> Iterator[Case]:
    for name, low, high in _ANY_INPUT:
        yield from unary(name, ALL if name != "abs" else NUMBERS, low, high)
    for name in _NUMBERS_ONLY:
        yield from unary(name, NUMBERS)
    yield from _bitwise_not()
    yield from _with_arguments()


def _bitwise_not() -> Iterator[Case]:
    operator, target = "aten::bitwise_not.out", aten.bitwise_not.default
    yield from by_dtype(operator, target, (*INTEGERS, "bool"), lambda dtype: (tensor(3, 5, dtype=dtype),))
    yield call(operator, "0-d", target, tensor(dtype="int32"))
    yield call(operator, "empty", target, tensor(0, 3, dtype="int64"))


def _with_arguments() -> Iterator[Case]:
    """Activations and others of one tensor that take more arguments."""
    x = partial(tensor, 3, 5)
    several: dict[str, tuple[Any, Sequence[str], dict[str, tuple[Any, ...]]]] = {
        "gelu.out": (aten.gelu.default, FLOATS, {"": ()}),
        "elu.out": (aten.elu.default, FLOATS, {"": (), "with arguments": (0.5, 2.0, 1.5)}),
        "leaky_relu.out": (aten.leaky_relu.default, FLOATS, {"": (), "slope": (0.3,)}),
        "hardtanh.out": (aten.hardtanh.default, FLOATS, {"": (), "bounds": (-0.5, 2.0)}),
        "glu.out": (aten.glu.default, FLOATS, {}),
        "logit.out": (aten.logit.default, FLOATS, {}),
    }
    for name, (target, dtypes, variants) in several.items():
        for variant, arguments in variants.items():
            for dtype in dtypes:
                yield call(f"aten::{name}", f"{variant} {dtype}".strip(), target, x(dtype=dtype), *arguments)
        if variants:
            yield call(f"aten::{name}", "0-d", target, tensor())
            yield call(f"aten::{name}", "empty", target, tensor(0, 3))
            values = special()
            if name.startswith("gelu"):  # of inf torch gives inf or NaN, as the number of elements has it vectorised
                values = values[~values.isinf()]
            yield call(f"aten::{name}", "special values", target, values)
            yield call(f"aten::{name}", "channels_last", target, channels_last(1, 3, 2, 2))
    yield call("aten::gelu.out", "tanh", aten.gelu.default, x(), approximate="tanh")
    yield call("aten::gelu.out", "tanh bfloat16", aten.gelu.default, x(dtype="bfloat16"), approximate="tanh")
    for dtype in ("int64", "int32", "int16", "int8"):
        yield call("aten::hardtanh.out", dtype, aten.hardtanh.default, x(dtype=dtype), -1, 2)
    for dtype in FLOATS:
        yield call("aten::glu.out", dtype, aten.glu.default, tensor(4, 6, dtype=dtype))
        logit = call("aten::logit.out", dtype, aten.logit.default, x(dtype=dtype, low=0.1, high=0.9))
        yield rounded_once(logit) if dtype == "float16" else logit
    yield call("aten::glu.out", "dim 0", aten.glu.default, tensor(4, 6), 0)
    yield call("aten::glu.out", "dim -2", aten.glu.default, tensor(2, 4, 3), -2)
    yield call("aten::glu.out", "empty", aten.glu.default, tensor(0, 6))
    yield call("aten::logit.out", "eps", aten.logit.default, x(low=0.0, high=1.0), 0.2)
    yield call("aten::logit.out", "special values", aten.logit.default, special())
    yield call("aten::logit.out", "0-d", aten.logit.default, tensor(low=0.2, high=0.8))
    yield from by_dtype("aten::logit.out", aten.logit.default, ("int64", "bool"), lambda d: (x(dtype=d),))


# ---- two tensors, or a tensor and a number -----------------------------------------------------------


def binary(
    operator: str, target: Any, dtypes: Sequence[str], low: float = -3.0, high: float = 3.0, *, mixed: bool = True
) -> Iterator[Case]:
    """Each dtype; broadcasting, no element, 0-d, mixed dtypes and layouts."""

    def x(*shape: int, dtype: str = dtypes[0], seed: int = 0) -> torch.Tensor:
        return tensor(*shape, dtype=dtype, low=low, high=high, seed=seed)

    def divisor(*shape: int, dtype: str = dtypes[0]) -> torch.Tensor:
        return _without_zero(x(*shape, dtype=dtype, seed=1))

    for dtype in dtypes:
        yield call(operator, dtype, target, x(3, 5, dtype=dtype), divisor(3, 5, dtype=dtype))
    yield call(operator, "broadcast", target, x(3, 1, 4), divisor(5, 1))
    yield call(operator, "broadcast row", target, x(4, 6), divisor(6))
    yield call(operator, "broadcast column", target, x(4, 6), divisor(4, 1))
    yield call(operator, "0-d and 0-d", target, x(), divisor())
    yield call(operator, "0-d and 2-d", target, x(), divisor(2, 3))
    yield call(operator, "empty", target, x(0, 3), divisor(3))
    if dtypes[0] == "float32":
        yield call(
            operator, "channels_last", target, channels_last(2, 3, 4, 2).abs() + 1, channels_last(2, 3, 4, 2) + 4
        )
        yield call(operator, "special values", target, special()[:, None], special())
    if mixed:
        for first, second in _pairs(dtypes):
            yield call(operator, f"{first} and {second}", target, x(3, 5, dtype=first), divisor(3, 5, dtype=second))
            yield call(operator, f"{first} and 0-d {second}", target, x(3, 5, dtype=first), divisor(dtype=second))


def _pairs(dtypes: Sequence[str]) -> list[tuple[str, str]]:
    pairs = [("float32", "int64"), ("int32", "float16"), ("uint8", "int8"), ("float16", "bfloat16"), ("bool", "int32")]
    return [(a, b) for a, b in pairs if a in dtypes and b in dtypes]


def _without_zero(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype is torch.bool else torch.where(x == 0, torch.ones_like(x), x)


def scalar(
    operator: str, target: Any, dtypes: Sequence[str], numbers: Sequence[Any], low: float = -3.0, high: float = 3.0
) -> Iterator[Case]:
    """A tensor and a number: each dtype with the first number, common dtypes with the others."""
    for dtype in dtypes:
        yield call(
            operator, f"{numbers[0]!r} {dtype}", target, tensor(3, 5, dtype=dtype, low=low, high=high), numbers[0]
        )
    for number in numbers[1:]:
        for dtype in (d for d in COMMON if d in dtypes):
            yield call(operator, f"{number!r} {dtype}", target, tensor(3, 5, dtype=dtype, low=low, high=high), number)
    dtype = dtypes[0]
    yield call(operator, "0-d", target, tensor(dtype=dtype, low=low, high=high), numbers[0])
    yield call(operator, "empty", target, tensor(0, 3, dtype=dtype), numbers[0])
    if dtype == "float32":
        yield call(operator, "special values", target, special(), numbers[0])


def arithmetic_cases() -> Iterator[Case]:
    yield from binary("aten::add.out", aten.add.Tensor, ALL)
    yield from binary("aten::sub.out", aten.sub.Tensor, NUMBERS)
    yield from binary("aten::mul.out", aten.mul.Tensor, ALL)
    yield from binary("aten::div.out", aten.div.Tensor, ALL)
    yield from scalar("aten::add.Scalar_out", aten.add.Scalar, ALL, (2, 1.5))
    yield from scalar("aten::sub.Scalar_out", aten.sub.Scalar, NUMBERS, (2, 1.5))
    yield from scalar("aten::mul.Scalar_out", aten.mul.Scalar, ALL, (2, 1.5))
    yield from scalar("aten::div.Scalar_out", aten.div.Scalar, ALL, (2, 1.5))
    yield from scalar("aten::rsub.Scalar_out", aten.rsub.Scalar, NUMBERS, (2, 1.5))
    x, y = tensor(3, 5), tensor(3, 5, seed=1)
    i, j = tensor(3, 5, dtype="int32"), tensor(3, 5, dtype="int32", seed=1)
    for name, target in (("add", aten.add), ("sub", aten.sub)):
        yield call(f"aten::{name}.out", "alpha", target.Tensor, x, y, alpha=0.5)
        yield call(f"aten::{name}.out", "alpha int32", target.Tensor, i, j, alpha=3)
        yield call(f"aten::{name}.Scalar_out", "alpha", target.Scalar, x, 2.0, 0.5)
    yield call("aten::rsub.Scalar_out", "alpha", aten.rsub.Scalar, x, 2.0, 0.5)
    for mode in ("floor", "trunc"):
        for case in binary("aten::div.out_mode", partial(_div_tensor, rounding_mode=mode), NUMBERS):
            yield _kept(case, f"{mode} {case.variant}", aten.div.Tensor_mode)
        for case in scalar("aten::div.Scalar_mode_out", partial(_div_scalar, rounding_mode=mode), NUMBERS, (2, -1.5)):
            yield _kept(case, f"{mode} {case.variant}", aten.div.Scalar_mode)
    yield call("aten::div.out_mode", "None", aten.div.Tensor_mode, x, y, rounding_mode=None)
    yield call("aten::div.out_mode", "None int32", aten.div.Tensor_mode, i, j.abs() + 1, rounding_mode=None)
    yield call("aten::div.Scalar_mode_out", "None", aten.div.Scalar_mode, x, 0.7, rounding_mode=None)
    yield from binary("aten::floor_divide.out", aten.floor_divide.default, NUMBERS)
    for name in ("fmod", "remainder"):
        yield from binary(f"aten::{name}.Tensor_out", getattr(aten, name).Tensor, NUMBERS)
        yield from scalar(f"aten::{name}.Scalar_out", getattr(aten, name).Scalar, NUMBERS, (2, -1.5))
    yield from binary("aten::pow.Tensor_Tensor_out", aten.pow.Tensor_Tensor, NUMBERS, low=1)
    yield from scalar("aten::pow.Tensor_Scalar_out", aten.pow.Tensor_Scalar, NUMBERS, (2, 0.5, 3, 0, -1.0), low=1)
    for dtype in NUMBERS:
        yield call("aten::pow.Scalar_out", dtype, aten.pow.Scalar, 2, tensor(3, 5, dtype=dtype, low=0))
    yield call("aten::pow.Scalar_out", "1.5", aten.pow.Scalar, 1.5, x)
    yield call("aten::pow.Scalar_out", "0-d", aten.pow.Scalar, 3.0, tensor())
    yield call("aten::pow.Scalar_out", "empty", aten.pow.Scalar, 3.0, tensor(0, 2))
    yield call("aten::pow.Scalar_out", "special values", aten.pow.Scalar, 0.5, special())
    yield from binary("aten::atan2.out", aten.atan2.default, ALL)
    yield from binary("aten::maximum.out", aten.maximum.default, ALL)
    yield from binary("aten::minimum.out", aten.minimum.default, ALL)


def _div_tensor(x: torch.Tensor, y: torch.Tensor, rounding_mode: str) -> torch.Tensor:
    quotient: torch.Tensor = aten.div.Tensor_mode(x, y, rounding_mode=rounding_mode)
    return quotient


def _div_scalar(x: torch.Tensor, y: float, rounding_mode: str) -> torch.Tensor:
    quotient: torch.Tensor = aten.div.Scalar_mode(x, y, rounding_mode=rounding_mode)
    return quotient


def _kept(case: Case, variant: str, *overloads: Any) -> Case:
    return Case(case.operator, variant, case.function, case.calls, keep=overloads)


def comparison_cases() -> Iterator[Case]:
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        packet = getattr(aten, name)
        yield from binary(f"aten::{name}.Tensor_out", packet.Tensor, ALL)
        yield from scalar(f"aten::{name}.Scalar_out", packet.Scalar, ALL, (1, 0.5))
    for name in ("logical_and", "logical_or", "logical_xor"):
        yield from binary(f"aten::{name}.out", getattr(aten, name).default, ALL)
    bits = (*INTEGERS, "bool")
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        packet = getattr(aten, name)
        yield from binary(f"aten::{name}.Tensor_out", packet.Tensor, bits)
        yield from scalar(f"aten::{name}.Scalar_out", packet.Scalar, bits, (3,))
    for name in ("bitwise_left_shift", "bitwise_right_shift"):
        packet = getattr(aten, name)
        yield from binary(f"aten::{name}.Tensor_out", packet.Tensor, INTEGERS, low=1, high=5)
        yield from scalar(f"aten::{name}.Tensor_Scalar_out", packet.Tensor_Scalar, INTEGERS, (2,), low=-9, high=30)


# ---- three tensors -----------------------------------------------------------------------------------


def clamp_and_where_cases() -> Iterator[Case]:
    clamp, both = aten.clamp.default, aten.clamp.Tensor
    yield from by_dtype("aten::clamp.out", clamp, NUMBERS, lambda d: (tensor(3, 5, dtype=d), 0, 2))
    x = tensor(3, 5)
    yield call("aten::clamp.out", "min only", clamp, x, -1.5)
    yield call("aten::clamp.out", "max only", clamp, x, None, 0.5)
    yield call("aten::clamp.out", "min above max", clamp, x, 2.0, 1.0)
    yield call("aten::clamp.out", "int64 with float bounds", clamp, tensor(3, 5, dtype="int64"), -1.5, 1.5)
    yield call("aten::clamp.out", "0-d", clamp, tensor(), -1.0, 1.0)
    yield call("aten::clamp.out", "empty", clamp, tensor(0, 2), -1.0, 1.0)
    yield call("aten::clamp.out", "special values", clamp, special(), -1.0, 1.0)
    yield call("aten::clamp.out", "channels_last", clamp, channels_last(1, 3, 2, 2), -1.0, 1.0)
    for dtype in NUMBERS:
        bounds = tensor(5, dtype=dtype, high=0), tensor(3, 1, dtype=dtype, low=1)
        yield call("aten::clamp.Tensor_out", dtype, both, tensor(3, 5, dtype=dtype), *bounds)
    yield call("aten::clamp.Tensor_out", "min only", both, x, tensor(3, 5, seed=1))
    yield call("aten::clamp.Tensor_out", "max only", both, x, None, tensor(5))
    yield call("aten::clamp.Tensor_out", "int64 and float32", both, tensor(3, 5, dtype="int64"), tensor(5))
    yield call("aten::clamp.Tensor_out", "NaN in a bound", both, tensor(14), special())
    where = aten.where.self
    for dtype in ALL:
        a, b = tensor(3, 5, dtype=dtype), tensor(3, 5, dtype=dtype, seed=1)
        yield call("aten::where.self_out", dtype, where, tensor(3, 5, dtype="bool"), a, b)
    yield call("aten::where.self_out", "broadcast", where, tensor(3, 1, dtype="bool"), tensor(5), tensor(2, 1, 1))
    yield call("aten::where.self_out", "0-d", where, tensor(dtype="bool"), tensor(2), tensor())
    yield call("aten::where.self_out", "empty", where, tensor(0, 1, dtype="bool"), tensor(3), tensor(1))
    yield call("aten::where.self_out", "int32 and float16", where, tensor(3, 5, dtype="bool"), x.int(), x.half())


def elementwise_cases() -> Iterator[Case]:
    yield from unary_cases()
    yield from arithmetic_cases()
    yield from comparison_cases()
    yield from clamp_and_where_cases()
