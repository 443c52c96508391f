"""Elementwise kernels against torch: every dtype that torch has them for, pairs of dtypes, special values, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels.oracle import FLOAT8, HALVES, Oracle, overload_of, to_numpy, to_torch

from delegraph.errors import InvalidArgument, InvalidType, RuntimeFault

inf, nan = math.inf, math.nan
BOOL, U8, I8, I16, I32, I64 = torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64
F16, BF16, F32, F64, C64, C128 = *HALVES, torch.float32, torch.float64, torch.complex64, torch.complex128
INTEGERS = (U8, I8, I16, I32, I64)
WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FLOATS, COMPLEX = (F16, BF16, F32, F64), (C64, C128)
DTYPES = (BOOL, *INTEGERS, *WIDE_UNSIGNED, *FLOATS, *COMPLEX, *FLOAT8)


def of(*values: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def special(dtype: torch.dtype) -> torch.Tensor:
    """Zeros, infinities, NaN, denormals, ends of the range, and ordinary numbers."""
    if dtype == BOOL:
        return of(True, False, True)
    if dtype.is_complex:
        parts = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, inf, -inf, nan, 3.7]
        return of(*(complex(a, b) for a in parts for b in parts), dtype=dtype)
    if dtype.is_floating_point:
        reals = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -2.5, inf, -inf, nan, 3.3e-5, 7.25, -19.3, 1e30, -3e38, 448.0]
        return of(*reals, dtype=F64).to(dtype)
    limits = torch.iinfo(dtype)
    integers = [0, 1, 2, 3, 5, 7, -1, -2, -7, 100, limits.max, limits.min, limits.max - 1, 64, 31]
    return of(*(i for i in integers if limits.min <= i <= limits.max), dtype=dtype)


def functional(op: str) -> Any:
    """The overload that the out overload `op` belongs to."""
    name, _, out = op.removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, name)
    candidates = {"out": ("Tensor", "default")}.get(out, (out.removesuffix("_out"),))
    return getattr(packet, next(c for c in candidates if c in packet.overloads()))


def expected(op: str, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    """Torch's results, in its dtypes; those of halves are computed in float32 and rounded once."""
    function = functional(op)
    result = function(*args, **kwargs)
    results = list(result) if isinstance(result, tuple) else [result]
    if any(isinstance(a, torch.Tensor) and a.dtype in HALVES for a in args):
        wide = function(
            *(a.float() if isinstance(a, torch.Tensor) and a.dtype in HALVES else a for a in args), **kwargs
        )
        wides = list(wide) if isinstance(wide, tuple) else [wide]
        results = [w.to(r.dtype) for w, r in zip(wides, results, strict=True)]
    return results


def check(oracle: Oracle, op: str, *args: Any, **kwargs: Any) -> None:
    eager = expected(op, *args, **kwargs)
    for mode in oracle.modes:
        for actual, want in oracle.results(op, args, kwargs, eager, mode):
            _assert_same(actual, want, f"{op} ({mode}) on {args}, {kwargs}")


def _assert_same(actual: torch.Tensor, eager: torch.Tensor, what: str) -> None:
    assert actual.dtype == eager.dtype
    if eager.dtype in (*FLOAT8, *WIDE_UNSIGNED):  # torch.testing knows no such dtype
        exact = F64 if eager.dtype in FLOAT8 else I64
        actual, eager = actual.to(exact), eager.to(exact)
    torch.testing.assert_close(actual, eager, equal_nan=True, msg=lambda m: f"{what}:\n{m}")


# ---- one tensor --------------------------------------------------------------------------------------

TRANSCENDENTAL = (BOOL, *INTEGERS, *WIDE_UNSIGNED, *FLOATS)
UNARY: dict[str, tuple[torch.dtype, ...]] = {
    **dict.fromkeys(
        (
            "acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "exp2", "expm1", "log", "log10",
            "log2", "reciprocal", "rsqrt", "sigmoid", "sin", "sinh", "sqrt", "tan", "tanh", "angle",
        ),
        (*TRANSCENDENTAL, *COMPLEX),
    ),
    "log1p": TRANSCENDENTAL,  # complex numbers: below
    "erf": TRANSCENDENTAL,
    **dict.fromkeys(("ceil", "floor", "round", "trunc"), (*INTEGERS, *WIDE_UNSIGNED, *FLOATS)),
    "abs": (*INTEGERS, *FLOATS, *COMPLEX, *FLOAT8),
    "neg": (*INTEGERS, *FLOATS, *COMPLEX),
    "sign": (BOOL, *INTEGERS, *FLOATS),
    "bitwise_not": (BOOL, *INTEGERS),
    "_conj_physical": (BOOL, *INTEGERS, *FLOATS, *COMPLEX),
    "logical_not": (BOOL, *INTEGERS, *FLOATS, *COMPLEX),
    "isnan": DTYPES,
    "isinf": (BOOL, *INTEGERS, *WIDE_UNSIGNED, *FLOATS, *COMPLEX, torch.float8_e5m2),
    "signbit": (BOOL, *INTEGERS, *WIDE_UNSIGNED, *FLOATS),
    "relu": (*INTEGERS, *FLOATS),
}  # fmt: skip


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, dtypes in UNARY.items() for dtype in dtypes])
def test_unary(oracle: Oracle, name: str, dtype: torch.dtype) -> None:
    x = special(dtype)
    if name == "log2" and dtype == C128:  # beside an infinity the angles must be equal to the last digit
        x = x[x.isfinite() & (x != 0)]
    check(oracle, f"aten::{name}.out", x)


@pytest.mark.parametrize("name", ["exp2", "angle", "signbit", "_conj_physical"])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 0)])
def test_scalars_and_empty_tensors(oracle: Oracle, name: str, shape: tuple[int, ...]) -> None:
    check(oracle, f"aten::{name}.out", torch.full(shape, -1.5))


@pytest.mark.parametrize("dtype", FLOATS)
def test_frexp(oracle: Oracle, dtype: torch.dtype) -> None:
    check(oracle, "aten::frexp.Tensor_out", special(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("decimals", [-2, -1, 1, 3])
def test_round_to_decimals(oracle: Oracle, dtype: torch.dtype, decimals: int) -> None:
    check(oracle, "aten::round.decimals_out", special(dtype), decimals=decimals)


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_conversion(oracle: Oracle, source: torch.dtype, target: torch.dtype) -> None:
    x = special(source)
    if not target.is_floating_point and not target.is_complex and target != BOOL:
        x = of(0, 1, 3, 100).to(source)  # what does not fit an integer is undefined in C
    eager = (x.real if source.is_complex and not target.is_complex and target != BOOL else x).to(target)
    (actual,) = oracle.kernel("aten::_to_copy.out", [to_numpy(x), False, None], [to_numpy(eager)], "run")
    _assert_same(to_torch(actual), eager, f"{source} to {target}")


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_is_moved_and_filled(oracle: Oracle, dtype: torch.dtype) -> None:
    x = special(dtype)[:16].reshape(4, 4)
    out = to_numpy(torch.zeros(4, 4).to(dtype))
    for op, inputs, eager in (
        ("aten::clone.out", [to_numpy(x), None], x),
        ("aten::permute_copy.out", [to_numpy(x), [1, 0]], x.t()),
        ("aten::where.self_out", [to_numpy(x == x), to_numpy(x), to_numpy(x)], x),
        ("aten::full.out", [[4, 4], 1.5], torch.full((4, 4), 1.5).to(dtype)),
    ):
        (actual,) = oracle.kernel(op, inputs, [out], "run")
        _assert_same(to_torch(actual), eager, op)


def test_what_float8_e4m3fn_cannot_hold_becomes_its_largest_number(oracle: Oracle) -> None:
    """In torch all ways of writing it saturate: products, of matrices too, and values added in place."""
    x = of(400.0, -300.0, 2.0).to(torch.float8_e4m3fn)
    places = torch.zeros(3, dtype=I64)
    for op, args, eager in (
        ("aten::mul.out", [x, x], torch.mul(x, x)),
        ("aten::mm.out", [x[:, None], x[None]], x[:, None] @ x[None]),
        ("aten::index_put.out", [x, [places], x.abs(), True], x.index_put((places,), x.abs(), accumulate=True)),
    ):
        for mode in oracle.modes:
            ((actual, want),) = oracle.results(op, args, {}, [eager], mode)
            _assert_same(actual, want, f"{op} ({mode})")
    (lowest,) = oracle.kernel("aten::scalar_tensor.out", [-inf], [to_numpy(x[0])], "run")
    assert float(to_torch(lowest)) == -448


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", ["add.out", "sub.out"])
def test_a_complex_infinity_is_multiplied_by_alpha(oracle: Oracle, name: str, dtype: torch.dtype) -> None:
    x, y = of(1 + 2j, 3 - 1j, inf, dtype=dtype), of(-inf, complex(0, inf), 2 + 1j, dtype=dtype)
    check(oracle, f"aten::{name}", x, y)


# ---- two operands ------------------------------------------------------------------------------------

REAL = (BOOL, *INTEGERS, *FLOATS)
PAIRS: dict[str, tuple[torch.dtype, ...]] = {
    **dict.fromkeys(
        ("div.out", "eq.Tensor_out", "ne.Tensor_out", "logical_and.out", "logical_xor.out"), REAL + COMPLEX
    ),
    **dict.fromkeys(("maximum.out", "minimum.out", "fmax.out", "fmin.out", "lt.Tensor_out", "ge.Tensor_out"), REAL),
    "mul.out": REAL,
    "copysign.out": REAL,
    "atan2.out": REAL,
    "gcd.out": INTEGERS,
    "bitwise_and.Tensor_out": (BOOL, *INTEGERS),
    "bitwise_left_shift.Tensor_out": INTEGERS,
    "bitwise_right_shift.Tensor_out": INTEGERS,
    "__lshift__.Tensor_out": INTEGERS,
    "__rshift__.Tensor_out": INTEGERS,
    "hypot.out": FLOATS,
}


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, dtypes in PAIRS.items() for dtype in dtypes])
def test_pairs_of_dtypes(oracle: Oracle, name: str, dtype: torch.dtype) -> None:
    for second in PAIRS[name]:
        x, y = special(dtype), special(second)
        if name == "gcd.out":  # of the smallest integer torch gives a negative divisor
            x, y = (t[t != torch.iinfo(t.dtype).min] for t in (x, y))
        eager = expected(f"aten::{name}", x[:, None], y)
        ((actual, want),) = oracle.results(f"aten::{name}", [x[:, None], y], {}, eager, "run")
        _assert_same(actual, want, f"{name} on {dtype} and {second}")


@pytest.mark.parametrize("name", ["mul.out", "div.out", "eq.Tensor_out", "ne.Tensor_out", "bitwise_xor.Tensor_out"])
@pytest.mark.parametrize("dtype", WIDE_UNSIGNED)
def test_wide_unsigned_pairs(oracle: Oracle, name: str, dtype: torch.dtype) -> None:
    check(oracle, f"aten::{name}", special(dtype)[:, None], special(dtype))


@pytest.mark.parametrize("name", ["mul.out", "eq.Tensor_out", "ne.Tensor_out"])
@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_pairs(oracle: Oracle, name: str, dtype: torch.dtype) -> None:
    check(oracle, f"aten::{name}", special(dtype)[:, None], special(dtype))


@pytest.mark.parametrize("dtype", [*FLOATS, I8, I64])
@pytest.mark.parametrize("divisor", [3, -2, 2.5, -0.5])
def test_remainder_keeps_the_sign_of_its_zeros(oracle: Oracle, dtype: torch.dtype, divisor: float) -> None:
    x = special(dtype)
    x = x[x.abs() < 1e30]  # of quotients that overflow torch gives NaN
    eager = expected("aten::remainder.Scalar_out", x, divisor)
    ((actual, want),) = oracle.results("aten::remainder.Scalar_out", [x, divisor], {}, eager, "run")
    _assert_same(actual, want, "remainder")
    if want.dtype.is_floating_point:
        assert torch.equal(torch.signbit(actual[want == 0]), torch.signbit(want[want == 0]))


SCALAR_FIRST = [
    *((name, x, 13) for name in ("bitwise_and", "bitwise_or", "bitwise_xor") for x in (special(I32), special(BOOL))),
    *((f"bitwise_{side}_shift", of(0, 1, 5, 31, 40, -1), -13) for side in ("left", "right")),
    *(("remainder", x, 7.5) for x in (of(2, -2, 5), of(2.0, -0.3, inf, nan, 0.0))),
    ("remainder", of(3, -4, 5, dtype=I8), 7),
]


@pytest.mark.parametrize(("name", "x", "number"), SCALAR_FIRST)
def test_a_number_first(oracle: Oracle, name: str, x: torch.Tensor, number: float) -> None:
    check(oracle, f"aten::{name}.Scalar_Tensor_out", number, x)


@pytest.mark.parametrize("number", [0, 3, 63, 64, -1])
@pytest.mark.parametrize("name", ["__lshift__.Scalar_out", "__rshift__.Scalar_out"])
def test_shift_by_a_number(oracle: Oracle, name: str, number: int) -> None:
    check(oracle, f"aten::{name}", special(I64), number)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nextafter_steps_in_the_operands_dtype(oracle: Oracle, dtype: torch.dtype) -> None:
    x, y = of(1.0, -1.0, 0.0, inf, nan, 448.0, 1e-7), of(2.0, 0.0, 1.0, 0.0, 1.0, -inf, 0.0)
    eager = [torch.nextafter(x.to(dtype), y.to(dtype))]
    for mode in oracle.modes:
        for actual, want in oracle.results("aten::nextafter.out", [x.to(dtype), y.to(dtype)], {}, eager, mode):
            torch.testing.assert_close(actual, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("exponents", [of(-1, 0, 3, 200, -300), of(1, 2, dtype=U8), of(2**32 + 1, 2**40)])
def test_ldexp_is_exact(oracle: Oracle, dtype: torch.dtype, exponents: torch.Tensor) -> None:
    x = of(1.5, 1e-30, -3.0, 0.0, inf, nan).to(dtype)[:, None]
    eager = [torch.ldexp(*(t.clone() for t in torch.broadcast_tensors(x, exponents)))]
    for mode in oracle.modes:
        for actual, want in oracle.results("aten::ldexp.out", [x, exponents], {}, eager, mode):
            _assert_same(actual, want, "ldexp")


@pytest.mark.parametrize(("x", "y"), [(of(3, -1), of(0.5, 2.0)), (of(3, -1), of(200, 2)), (of(1 + 2j), of(3.0))])
def test_ldexp_of_other_pairs_is_a_product(oracle: Oracle, x: torch.Tensor, y: torch.Tensor) -> None:
    check(oracle, "aten::ldexp.out", x, y)


def test_lcm_wraps_around(oracle: Oracle) -> None:
    check(oracle, "aten::lcm.out", of(4, 6, 0, -3, 2, 100)[:, None], of(6, 9, 0, 5, 2**63 - 1, 2**63 - 2))
    check(oracle, "aten::lcm.out", of(4, 6, 0, -3, 2, 100, dtype=I16)[:, None], of(6, 9, 0, 5, 32767, 32766, dtype=I16))


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("op", ["aten::complex.out", "aten::polar.out"])
def test_complex_of_two_reals(oracle: Oracle, op: str, dtype: torch.dtype) -> None:
    check(oracle, op, of(1.0, -2.0, 0.0, dtype=dtype)[:, None], of(0.5, -3.0, nan, dtype=dtype))


@pytest.mark.parametrize("dtype", [I8, I32, I64, F32, F64])
def test_add_relu(oracle: Oracle, dtype: torch.dtype) -> None:
    x, y = of(100, -100, 3, 0).to(dtype), of(100, -100, -5, 7).to(dtype)
    check(oracle, "aten::_add_relu.out", x, y)
    check(oracle, "aten::_add_relu.out", x, y, alpha=2)
    check(oracle, "aten::_add_relu.Scalar_out", x, 2)


def test_masked_scale(oracle: Oracle) -> None:
    x, mask = of(1.0, -2.0, inf, 4.0), of(1, 0, 1, 1, dtype=U8)
    inputs = [to_numpy(x), to_numpy(mask), 0.5]
    for mode in oracle.modes:  # on a CPU torch has no kernel
        (actual,) = oracle.kernel("aten::_masked_scale.out", inputs, [np.ones(4, np.float32)], mode)
        assert actual.tolist() == [0.5, -0.0, inf, 2.0]


COMPLEX_SCALARS = [
    *(
        (f"{name}.Scalar_out", dtype)
        for name in ("add", "mul", "eq", "div")
        for dtype in (*WIDE_UNSIGNED, I8, BF16, F64)
    ),
]


@pytest.mark.parametrize(("name", "dtype"), COMPLEX_SCALARS)
def test_a_complex_number_makes_the_result_complex(oracle: Oracle, name: str, dtype: torch.dtype) -> None:
    check(oracle, f"aten::{name}", of(1, 2, 3).to(dtype), 2j)


def test_a_complex_scalar_tensor_takes_the_width_of_the_floats(oracle: Oracle) -> None:
    check(oracle, "aten::mul.out", of(1.5, 2.0), torch.tensor(1 + 2j, dtype=C128))


@pytest.mark.parametrize("exponent", [0, 1, 2, 0.5, -1, 3])
def test_powers_of_complex_numbers(oracle: Oracle, exponent: float) -> None:
    check(oracle, "aten::pow.Tensor_Scalar_out", of(1 + 2j, -1 + 0j, 0.5 - 3j), exponent)


def complex_edges(dtype: torch.dtype) -> torch.Tensor:
    """Every pair of parts that are zero, tiny, ordinary, huge or not finite."""
    info = torch.finfo(dtype.to_real())
    reals = of(0.0, -0.0, 1.0, -2.5, 1e-10, info.tiny, info.max, -info.max, inf, -inf, nan, dtype=dtype.to_real())
    return torch.view_as_complex(torch.cartesian_prod(reals, reals))


def check_as_numbers(oracle: Oracle, op: str, *args: Any) -> None:
    """Complex results as whole numbers: which part of an infinite one is NaN, torch's own loops differ in."""
    (eager,) = expected(op, *args)
    epsilon = 4096 * torch.finfo(eager.dtype).eps if eager.dtype == C128 else 1e-5
    for mode in oracle.modes:
        for actual, want in oracle.results(op, args, {}, [eager], mode):
            finite = want.isfinite()
            assert torch.equal(actual.isfinite(), finite), f"{op} ({mode})"
            actual, want = actual[finite] / 4, want[finite] / 4  # the magnitude of the largest overflows
            apart = (actual - want).abs() > epsilon * want.abs() + torch.finfo(want.dtype).tiny
            assert not apart.any(), f"{op} ({mode}): {actual[apart]}, not {want[apart]}"


@pytest.mark.parametrize("dtype", COMPLEX)
def test_powers_of_complex_numbers_at_edges(oracle: Oracle, dtype: torch.dtype) -> None:
    base, exponent = torch.cartesian_prod(complex_edges(dtype), complex_edges(dtype)).unbind(1)
    check_as_numbers(oracle, "aten::pow.Tensor_Tensor_out", base.contiguous(), exponent.contiguous())
    zero = torch.zeros((), dtype=dtype)
    check_as_numbers(oracle, "aten::pow.Tensor_Tensor_out", zero, zero)
    check_as_numbers(oracle, "aten::pow.Tensor_Tensor_out", complex_edges(dtype), zero)


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("number", [-3, -2, -1, -0.5, 0.5, 2, 2.5, 3, 7, 99, 100, 1e300, -0.0, inf, -inf, nan])
def test_powers_of_complex_edges_and_numbers(oracle: Oracle, dtype: torch.dtype, number: float) -> None:
    check_as_numbers(oracle, "aten::pow.Tensor_Scalar_out", complex_edges(dtype), number)
    check_as_numbers(oracle, "aten::pow.Scalar_out", number, complex_edges(dtype))


@pytest.mark.parametrize("dtype", COMPLEX)
def test_logarithms_of_one_and_complex_numbers(oracle: Oracle, dtype: torch.dtype) -> None:
    """Of small numbers and of huge ones digits are as many as of ordinary ones."""
    check_as_numbers(oracle, "aten::log1p.out", complex_edges(dtype))
    check_as_numbers(oracle, "aten::log1p.out", torch.tensor(3e38 - 3e38j, dtype=dtype))


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS, *COMPLEX])
def test_one_to_any_power_is_one(oracle: Oracle, dtype: torch.dtype) -> None:
    check(oracle, "aten::pow.Scalar_out", 1, special(dtype))


# ---- ranges ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("bounds", [(0.5, 3.7, 1), (1, 7, 2.5), (-3, 4, 1), (5, 0, -2), (0.2, 4.9, 1.3), (2, 2, 1)])
def test_arange(oracle: Oracle, dtype: torch.dtype, bounds: tuple[float, float, float]) -> None:
    if dtype == U8:
        bounds = (abs(bounds[0]), *bounds[1:])
    eager = torch.arange(*bounds, dtype=dtype)
    ((actual, want),) = oracle.results("aten::arange.start_out", list(bounds), {}, [eager], "bind")
    _assert_same(actual, want, f"arange{bounds}")


# ---- refusals ----------------------------------------------------------------------------------------

X = np.ones((2, 3), np.float32)
INT = np.ones((2, 3), np.int64)
COMPLEX_ARRAY = np.ones((2, 3), np.complex64)
UNSIGNED = np.ones((2, 3), np.uint16)
E5M2 = to_numpy(torch.ones(2, 3).to(torch.float8_e5m2))
E4M3 = to_numpy(torch.ones(2, 3).to(torch.float8_e4m3fn))
# fmt: off
REFUSED: list[tuple[str, list[Any], Any, type[RuntimeFault], str]] = [
    ("exp.out", [E5M2], X, InvalidType, "argument 'self' must be bool or integer or floating-point or complex"),
    ("add.out", [E5M2, E5M2, 1], E5M2, InvalidType, "but is float8_e5m2"),
    ("mul.out", [E5M2, E4M3], E5M2, InvalidType, "float8_e5m2 and float8_e4m3fn have no common type"),
    ("mul.out", [E5M2, X], X, InvalidType, "float8_e5m2 and float32 have no common type"),
    ("add.out", [UNSIGNED, INT, 1], INT, InvalidType, "uint16 and int64 have no common integer type"),
    ("floor.out", [COMPLEX_ARRAY], COMPLEX_ARRAY, InvalidType, "argument 'self' must be integer or floating-point"),
    ("lt.Tensor_out", [COMPLEX_ARRAY, COMPLEX_ARRAY], INT, InvalidType, "but is complex64"),
    ("maximum.out", [COMPLEX_ARRAY, X], COMPLEX_ARRAY, InvalidType, "but is complex64"),
    ("clamp.out", [COMPLEX_ARRAY, 0, 1], COMPLEX_ARRAY, InvalidType, "but is complex64"),
    ("relu.out", [COMPLEX_ARRAY], COMPLEX_ARRAY, InvalidType, "but is complex64"),
    ("signbit.out", [COMPLEX_ARRAY], INT, InvalidType, "but is complex64"),
    ("gcd.out", [X, X], X, InvalidType, "must be integer, but is float32"),
    ("bitwise_left_shift.Tensor_out", [INT > 0, INT > 0], INT, InvalidType, "must be integer, but is bool"),
    ("hypot.out", [INT, INT], X, InvalidType, "must be floating-point, but is int64"),
    ("round.decimals_out", [INT, 1], INT, InvalidType, "must be floating-point, but is int64"),
    ("sub.Scalar_out", [X, True, 1], X, InvalidType, "subtraction is not defined for bool tensors"),
    ("complex.out", [X, X.astype(np.float64)], COMPLEX_ARRAY, InvalidType, "argument 'real' is float32"),
    ("complex.out", [INT, INT], COMPLEX_ARRAY, InvalidType, "argument 'real' must be float32 or float64"),
    ("polar.out", [X, X], X, InvalidType, "argument 'out' must be complex64, but is float32"),
    ("remainder.Scalar_Tensor_out", [3, INT - 1], INT, InvalidArgument, "argument 'other' holds a zero"),
]
# fmt: on


@pytest.mark.parametrize(("name", "inputs", "out", "fault", "message"), REFUSED)
def test_refused(
    oracle: Oracle, name: str, inputs: list[Any], out: Any, fault: type[RuntimeFault], message: str
) -> None:
    oracle.assert_refused(f"aten::{name}", inputs, [out.copy()], fault, message)


def test_frexp_needs_an_int32_exponent(oracle: Oracle) -> None:
    with pytest.raises(InvalidType, match="argument 'exponent' must be int32"):
        oracle.kernel("aten::frexp.Tensor_out", [X], [X.copy(), INT.copy()], "run")


def test_every_operator_named_here_exists() -> None:
    for name in (*PAIRS, *(f"{name}.out" for name in UNARY)):
        assert overload_of(f"aten::{name}") is not None


# ---- numbers beside halves ---------------------------------------------------------------------------

BESIDE_A_NUMBER = ("eq", "ne", "lt", "le", "gt", "ge", "remainder", "fmod", "add", "sub", "mul", "div")


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", BESIDE_A_NUMBER)
def test_a_number_is_rounded_to_halves_where_torch_rounds_it(oracle: Oracle, name: str, dtype: torch.dtype) -> None:
    """Compared with what torch makes of the halves themselves, not of wider ones."""
    x = of(0.3, 0.1, 0.7, 0.2, 1.1, 5.3, 2.9, 1.7, dtype=dtype)
    for number in (0.3, 0.7, 1.1):
        eager = functional(f"aten::{name}.Scalar_out")(x, number)
        alpha = [1] if name in ("add", "sub") else []
        out = to_numpy(torch.zeros_like(eager))
        (out,) = oracle.kernel(f"aten::{name}.Scalar_out", [to_numpy(x), number, *alpha], [out], "run")
        assert torch.equal(to_torch(out), eager), number
