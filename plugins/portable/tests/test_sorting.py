"""Sorting, selection, medians and modes against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from plugins.portable.tests.test_cases import BF16, BOOL, F16, F32, F64, I8, I32, I64, INTS, SPECIAL, U8, inf, nan, of
from tests.kernels.oracle import Oracle, to_numpy

from delegraph.errors import InvalidArgument, InvalidType

NUMBERS = (U8, I8, torch.int16, I32, I64, F16, BF16, F32, F64)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
TIES = of(2.0, 1.0, 2.0, -0.0, 0.0, nan, 1.0, nan, inf, -inf)
WIDE_INTS = of(2**62, -(2**62), 5, 5, -(2**62), 2**40).repeat(90)


def distinct(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    """Different values in random order; 100 at most, for 8 bits."""
    numbers = torch.randperm(torch.Size(shape).numel()).reshape(shape)
    return (numbers if dtype in (U8, *UNSIGNED) else numbers - 40).to(dtype)


def some(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Few different values, so that many are equal."""
    return torch.randint(0, 2 if dtype == BOOL else 9, shape).to(dtype)


# ---- sort -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BOOL, *NUMBERS, *UNSIGNED])
@pytest.mark.parametrize("descending", [False, True])
def test_sort(oracle: Oracle, dtype: torch.dtype, descending: bool) -> None:
    for x in (some(4, 5, dtype=dtype), some(3, 400, dtype=dtype)):
        for dim in (0, -1):
            options = {"stable": True, "dim": dim, "descending": descending}
            oracle.check("aten::sort.values_stable", x, **options, out_dtype=(dtype, I64))


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("descending", [False, True])
def test_sort_of_distinct_values(oracle: Oracle, dtype: torch.dtype, descending: bool) -> None:
    oracle.check("aten::sort.values", distinct(10, 10, dtype=dtype), 1, descending, out_dtype=(dtype, I64))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "x",
    [
        TIES, TIES.double(), SPECIAL, TIES.repeat(60), TIES.double().repeat(60), WIDE_INTS, INTS, torch.tensor(3.0),
        torch.zeros(0), torch.zeros(0, 3), of(2**63 - 1, -(2**63)), TIES.half(), TIES.bfloat16(),
    ],
)  # fmt: skip
def test_sort_is_stable_and_puts_nan_last(oracle: Oracle, x: torch.Tensor, descending: bool) -> None:
    oracle.check("aten::sort.values_stable", x, stable=True, dim=0, descending=descending, out_dtype=(x.dtype, I64))


def test_sort_along_a_middle_dim(oracle: Oracle) -> None:
    oracle.check("aten::sort.values_stable", some(5, 30, 7, dtype=F32), stable=True, dim=1, out_dtype=(F32, I64))


# ---- topk, kthvalue ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("largest", [False, True])
def test_topk_of_distinct_values(oracle: Oracle, dtype: torch.dtype, largest: bool) -> None:
    for k, dim in ((3, 1), (2, 0), (10, -1)):
        oracle.check("aten::topk.values", distinct(10, 10, dtype=dtype), k, dim, largest, out_dtype=(dtype, I64))


@pytest.mark.parametrize("dtype", [F32, F64, I64])
@pytest.mark.parametrize("largest", [False, True])
def test_topk_of_many(oracle: Oracle, dtype: torch.dtype, largest: bool) -> None:
    x = torch.stack([torch.randperm(3000), torch.randperm(3000)]).to(dtype) * (1 if dtype != I64 else 2**40)
    oracle.check("aten::topk.values", x, 20, -1, largest, out_dtype=(dtype, I64))


@pytest.mark.parametrize(("largest", "places"), [(True, [0, 1, 2]), (False, [3, 4, 5])])
def test_topk_takes_the_first_of_equal_values(oracle: Oracle, largest: bool, places: list[int]) -> None:
    x = np.repeat(np.array([[2, 1]], np.float32), [3, 997], axis=1)
    outs = [np.zeros((1, 3), np.float32), np.zeros((1, 3), np.int64)]
    _, indices = oracle.kernel("aten::topk.values", [x, 3, 1, largest, True], outs, "run")
    assert indices.tolist() == [places]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_kthvalue(oracle: Oracle, dtype: torch.dtype) -> None:
    x = distinct(10, 10, dtype=dtype)
    for k, dim, keepdim in ((1, 0, False), (4, -1, True), (10, 1, False)):
        oracle.check("aten::kthvalue.values", x, k, dim, keepdim, out_dtype=(dtype, I64))


@pytest.mark.parametrize(
    ("x", "k", "dim"),
    [(of(nan, 2.0, 1.0), 3, 0), (torch.tensor(3.0), 1, -1), (torch.zeros(0, 3), 2, 1), (torch.randperm(2000), 7, 0)],
)
def test_kthvalue_at_edges(oracle: Oracle, x: torch.Tensor, k: int, dim: int) -> None:
    oracle.check("aten::kthvalue.values", x, k, dim, out_dtype=(x.dtype, I64))


# ---- median, mode -----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["median", "nanmedian"])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_median(oracle: Oracle, op: str, dtype: torch.dtype) -> None:
    x = distinct(9, 10, dtype=dtype)
    oracle.check(f"aten::{op}.out", x)
    for dim, keepdim in ((0, False), (1, True), (-1, False)):
        oracle.check(f"aten::{op}.dim_values", x, dim, keepdim, out_dtype=(dtype, I64))


@pytest.mark.parametrize("op", ["median", "nanmedian"])
@pytest.mark.parametrize(
    "x",
    [
        of(1.0, nan, nan), of(nan, 1.0, nan, 3.0, 2.0), of(nan, nan), of([nan, 3, 1], [2, 1, 3]), torch.tensor(2.0),
        torch.tensor(nan), of([nan, 3, 1], [2, 1, 3]).half(), torch.randperm(3001).float(), torch.randperm(3000),
    ],
)  # fmt: skip
def test_median_at_edges(oracle: Oracle, op: str, x: torch.Tensor) -> None:
    oracle.check(f"aten::{op}.out", x)
    oracle.check(f"aten::{op}.dim_values", x, -1, out_dtype=(x.dtype, I64))


@pytest.mark.parametrize("op", ["median", "nanmedian"])
@pytest.mark.parametrize("dtype", [F32, F16, I64, I32])
def test_median_of_nothing(oracle: Oracle, op: str, dtype: torch.dtype) -> None:
    oracle.check(f"aten::{op}.out", torch.zeros(0, dtype=dtype))
    oracle.check(f"aten::{op}.dim_values", torch.zeros(0, 3, dtype=dtype), 1, out_dtype=(dtype, I64))


@pytest.mark.parametrize("dtype", [BOOL, *NUMBERS])
def test_mode(oracle: Oracle, dtype: torch.dtype) -> None:
    x = some(9, 8, dtype=dtype)
    for dim, keepdim in ((0, False), (-1, True)):
        check_mode(oracle, x, dim, keepdim)


def check_mode(oracle: Oracle, x: torch.Tensor, dim: int, keepdim: bool) -> None:
    """The values are torch's; which of the equal elements the index names, torch leaves open."""
    expected = torch.mode(x, dim, keepdim)
    for mode in oracle.modes:
        (values, eager), (indices, _) = oracle.results("aten::mode.values", [x, dim, keepdim], {}, expected, mode)
        assert torch.equal(values, eager)
        if x.dim() and values.numel():
            places, named = (t if keepdim else t.unsqueeze(dim) for t in (indices, values))
            assert torch.equal(x.gather(dim, places), named)


@pytest.mark.parametrize(
    ("x", "dim"),
    [(of(1.0, 1, 2, 2, 0), 0), (torch.tensor(3.0), 0), (torch.zeros(0, 3), 1), (of(inf, -inf, inf, 3.0), -1)],
)
def test_mode_at_edges(oracle: Oracle, x: torch.Tensor, dim: int) -> None:
    check_mode(oracle, x, dim, keepdim=False)


def test_mode_of_many_equals_torch_in_value(oracle: Oracle) -> None:
    x = torch.randint(0, 50, (3, 1000))  # of equal values torch takes any place
    values, indices = oracle.kernel(
        "aten::mode.values", [to_numpy(x), -1, False], [np.zeros(3, np.int64), np.zeros(3, np.int64)], "run"
    )
    assert torch.equal(torch.from_numpy(values), x.mode().values)
    assert np.array_equal(np.take_along_axis(x.numpy(), indices[:, None], 1)[:, 0], values)


# ---- refusals ---------------------------------------------------------------------------------------

F, I, C = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int64), np.zeros((2, 3), np.complex64)  # noqa: E741


@pytest.mark.parametrize(
    ("op", "inputs", "outs", "fault", "message"),
    [
        ("aten::sort.values", [C, 0, False], [C, I], InvalidType, "argument 'self' is complex64: complex numbers have"),
        ("aten::sort.values", [F, 2, False], [F, I], InvalidArgument, "argument 'dim' is 2"),
        ("aten::sort.values", [F, 0, False], [I, I], InvalidType, "cannot be cast to the int64 of argument 'out'"),
        ("aten::kthvalue.values", [F, 0, 0, False], [F, I], InvalidArgument, "argument 'k' is 0, but dimension 0 has"),
        ("aten::kthvalue.values", [F, 3, 0, False], [F, I], InvalidArgument, "argument 'k' is 3, but dimension 0 has"),
        ("aten::topk.values", [F, -1, 0, True, True], [F, I], InvalidArgument, "argument 'k' is -1"),
        ("aten::median.dim_values", [F[:0], 0, False], [F, I], InvalidArgument, "has no element to choose in dim"),
        ("aten::mode.values", [F[:0], 0, False], [F, I], InvalidArgument, "has no element to choose in dimension 0"),
        ("aten::median.out", [C], [C], InvalidType, "argument 'self' is complex64"),
    ],
)
def test_refused(
    oracle: Oracle, op: str, inputs: list[Any], outs: list[Any], fault: type[Exception], message: str
) -> None:
    oracle.assert_refused(op, inputs, outs, fault, message)
