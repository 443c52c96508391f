"""Running sums, products, extremes and log-sums against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from plugins.portable.tests.test_cases import (
    BF16,
    BOOL,
    C64,
    EMPTY,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    INTS,
    SPECIAL,
    U8,
    X,
    inf,
    nan,
    of,
    rand,
)
from tests.kernels.oracle import Oracle

from delegraph.errors import InvalidArgument, InvalidType

C128 = torch.complex128
DTYPES = (BOOL, U8, I8, torch.int16, I32, I64, F16, BF16, F32, F64)
TIES = of(2, 2, 1, 3, 3, 0)
WIDE = rand(5, 40, 3)
"""Rows long enough for a step at a time."""


def ones_and_twos(dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(1, 3, (3, 4)).to(dtype)


@pytest.mark.parametrize("op", ["aten::cumsum.out", "aten::cumprod.out"])
@pytest.mark.parametrize("dtype", [*DTYPES, C64, C128])
def test_sums_and_products(oracle: Oracle, op: str, dtype: torch.dtype) -> None:
    wide = dtype.is_floating_point or dtype.is_complex
    for dim in (0, -1):
        oracle.check(op, ones_and_twos(dtype), dim, out_dtype=dtype if wide else I64)


@pytest.mark.parametrize("op", ["aten::cumsum.out", "aten::cumprod.out"])
@pytest.mark.parametrize(
    ("x", "dim", "dtype"),
    [
        (of(1.7, 2.7), 0, I64), (INTS, 0, F32), (INTS, -1, F64), (X, 0, F64), (of(200, 100), 0, U8),
        (torch.tensor(3), 0, F32), (torch.tensor(3.5), -1, None), (EMPTY, 0, None), (EMPTY, 1, None),
        (rand(3, 4, dtype=C64), 0, F32), (torch.tensor(1 + 2j), 0, F64),
        (SPECIAL, 0, None), (WIDE, 0, None), (WIDE, 1, None), (WIDE, 2, None), (WIDE.to(F16), 0, None),
    ],
)  # fmt: skip
def test_edges(oracle: Oracle, op: str, x: torch.Tensor, dim: int, dtype: torch.dtype | None) -> None:
    oracle.check(op, x, dim, dtype=dtype, out_dtype=dtype or x.dtype)


def test_long_sums_are_accumulated_in_float64(oracle: Oracle) -> None:
    oracle.check("aten::cumsum.out", torch.full((100_000,), 0.1), 0)


@pytest.mark.parametrize("op", ["aten::cummax.out", "aten::cummin.out"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_extremes(oracle: Oracle, op: str, dtype: torch.dtype) -> None:
    x = rand(4, 5, dtype=dtype) if dtype != BOOL else rand(4, 5) > 0
    for dim in (0, -1):
        oracle.check(op, x, dim, out_dtype=(dtype, I64))


@pytest.mark.parametrize("op", ["aten::cummax.out", "aten::cummin.out"])
@pytest.mark.parametrize(
    ("x", "dim"),
    [
        (of(1.0, nan, 2.0, nan, 3.0), 0), (TIES, 0), (TIES.flip(0), -1), (torch.tensor(2.0), 0), (EMPTY, 0),
        (EMPTY, 1), (SPECIAL, 0), (WIDE, 0), (WIDE, 1), (WIDE, 2),
    ],
)  # fmt: skip
def test_extremes_at_edges(oracle: Oracle, op: str, x: torch.Tensor, dim: int) -> None:
    oracle.check(op, x, dim, out_dtype=(x.dtype, I64))


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64, C64, C128])
def test_log_sums(oracle: Oracle, dtype: torch.dtype) -> None:
    for dim in (0, -1):
        oracle.check("aten::logcumsumexp.out", rand(4, 5, dtype=dtype), dim)


@pytest.mark.parametrize(
    "x",
    [
        of(inf, -inf, inf, 1.0), of(-inf, -inf, 1.0, nan, 2.0), of(1000.0, 1000.0, -1000.0), torch.tensor(2.5), EMPTY,
        of(complex(-inf, 1), complex(-inf, 2), 3 - 1j, complex(1, nan), 3), of(1 + 2j, 1 - 1j, complex(inf, 1)),
    ],
)  # fmt: skip
def test_log_sums_at_edges(oracle: Oracle, x: torch.Tensor) -> None:
    oracle.check("aten::logcumsumexp.out", x, 0)


@pytest.mark.parametrize("dtype", [C64, C128])
def test_log_sums_of_complex_numbers_with_huge_parts(oracle: Oracle, dtype: torch.dtype) -> None:
    """Of equal moduli torch takes out that of the new element: beside its angle a huge one would lose all digits."""
    huge = torch.finfo(dtype.to_real()).max
    for x in (of(0j, 1j, -2.5j, complex(0, huge), 2 + 1j), of(complex(0, huge), 1j, -2.5j), of(-1e-20j, 1j, 3j)):
        oracle.check("aten::logcumsumexp.out", x.to(dtype), 0)


F, I, C = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int64), np.zeros((2, 3), np.complex64)  # noqa: E741


@pytest.mark.parametrize(
    ("op", "inputs", "outs", "fault", "message"),
    [
        ("aten::cumsum.out", [F, 2, None], [F], InvalidArgument, "argument 'dim' is 2, but the tensor has 2 dim"),
        ("aten::cumprod.out", [F, 0, None], [I], InvalidType, "the result has dtype float32"),
        ("aten::cummax.out", [C, 0], [C, I], InvalidType, "argument 'self' is complex64: complex numbers have no"),
        ("aten::cummin.out", [F, -3], [F, I], InvalidArgument, "argument 'dim' is -3"),
        ("aten::logcumsumexp.out", [I, 0], [F], InvalidType, "argument 'self' must be floating-point or complex"),
    ],
)  # fmt: skip
def test_refused(
    oracle: Oracle, op: str, inputs: list[Any], outs: list[Any], fault: type[Exception], message: str
) -> None:
    oracle.assert_refused(op, inputs, outs, fault, message)
