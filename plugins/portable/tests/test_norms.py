"""Norms, distances, variances and reductions of many shapes against torch; bits taken as another dtype; triangles."""

from __future__ import annotations

from itertools import product
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
    IMAGE,
    INTS,
    LAST,
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

I16, C128 = torch.int16, torch.complex128
FLOATS = (F16, BF16, F32, F64)
REAL_OF = {C64: F32, C128: F64}
ORDERS = (2, 1, 0, 3, 0.5, -1, -2.5, inf, -inf)

# ---- norms ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, C64, C128])
@pytest.mark.parametrize("order", ORDERS)
def test_vector_norm(oracle: Oracle, dtype: torch.dtype, order: float) -> None:
    x, result = rand(3, 40, dtype=dtype), REAL_OF.get(dtype, dtype)
    for dim, keepdim in ((None, False), ([0], False), ([-1], True), ([0, 1], True), ([], False)):
        oracle.check("aten::linalg_vector_norm.out", x, order, dim, keepdim, out_dtype=result)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("x", [SPECIAL, of(nan, 2.0), torch.tensor(-3.0), of(0.0, 0.0), LAST, of(1e30, 2.0)])
def test_vector_norm_at_edges(oracle: Oracle, order: float, x: torch.Tensor) -> None:
    oracle.check("aten::linalg_vector_norm.out", x, order)


def test_vector_norm_of_nothing(oracle: Oracle) -> None:
    for order in (0, 1, 2, 3.5):
        oracle.check("aten::linalg_vector_norm.out", EMPTY, order)
        oracle.check("aten::linalg_vector_norm.out", EMPTY, order, [0])
    oracle.check("aten::linalg_vector_norm.out", EMPTY, inf, [1])


def test_vector_norm_in_a_wider_type(oracle: Oracle) -> None:
    oracle.check("aten::linalg_vector_norm.out", X, 3, dtype=F64, out_dtype=F64)
    oracle.check("aten::linalg_vector_norm.out", rand(5, dtype=C64), 2, dtype=C128, out_dtype=F64)


@pytest.mark.parametrize("dtype", [*FLOATS, C64])
@pytest.mark.parametrize("order", [2, 1, 0, 3, inf, -inf])
def test_dist(oracle: Oracle, dtype: torch.dtype, order: float) -> None:
    result = REAL_OF.get(dtype, dtype)
    oracle.check("aten::dist.out", rand(3, 4, dtype=dtype), rand(4, dtype=dtype), order, out_dtype=result)


def test_dist_promotes(oracle: Oracle) -> None:
    oracle.check("aten::dist.out", INTS, rand(5), out_dtype=F32)
    oracle.check("aten::dist.out", torch.tensor(1.0), torch.tensor(4.0))
    oracle.check("aten::dist.out", torch.zeros(0), torch.zeros(0))


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5, inf])
@pytest.mark.parametrize(("rows", "others", "width"), [(700, 30, 60), (5, 7, 1), (0, 3, 2), (3, 4, 0), (9, 9, 3)])
def test_distances_between_rows(oracle: Oracle, p: float, rows: int, others: int, width: int) -> None:
    oracle.check("aten::_cdist_forward.out", rand(rows, width), rand(others, width), p, 2)  # 2: without products


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.5])  # of infinite order torch drops NaN, as its instructions have it
@pytest.mark.parametrize("special", [inf, float("nan"), 0.0])
def test_distances_to_rows_with_special_values(oracle: Oracle, p: float, special: float) -> None:
    rows = rand(3, 4)
    rows[1, 2] = special
    oracle.check("aten::_cdist_forward.out", rows, rand(2, 4), p, 2)
    oracle.check("aten::_pdist_forward.out", rows, p)


# ---- reductions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["sum.IntList_out", "amax.out", "amin.out", "mean.out"])
@pytest.mark.parametrize("dtype", [BOOL, U8, I32, I64, *FLOATS, C64])
@pytest.mark.parametrize("size", [1, 2, 7, 16, 17])
def test_short_dims_beside_long_ones(oracle: Oracle, op: str, dtype: torch.dtype, size: int) -> None:
    ordered, whole = op.startswith("am"), not (dtype.is_floating_point or dtype.is_complex)
    if (ordered and dtype.is_complex) or (op == "mean.out" and whole):
        return  # torch has no order of complex numbers, and no mean of integers
    out_dtype = I64 if whole and not ordered else dtype
    x = rand(20, size, 20, dtype=F32).mul(3).to(dtype)
    for axis in (0, 1, 2):
        oracle.check(f"aten::{op}", x.transpose(1, axis), [axis], out_dtype=out_dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, C64, C128])
def test_variance(oracle: Oracle, dtype: torch.dtype) -> None:
    result = REAL_OF.get(dtype, dtype)
    for x in (rand(3, 50, dtype=dtype), rand(2, 3, 4, dtype=dtype)):
        for dim, keepdim, correction in ((None, False, None), ([0], True, 0), ([-1], False, 2), ([0, -1], False, 0.5)):
            options = {"correction": correction, "keepdim": keepdim}
            oracle.check("aten::var.correction_out", x, dim, **options, out_dtype=result)
            oracle.check("aten::var_mean.correction_out", x, dim, **options, out_dtype=(result, dtype))


@pytest.mark.parametrize("x", [EMPTY, torch.tensor(2.0), SPECIAL, of(1.0), LAST, IMAGE + 1000])
def test_variance_at_edges(oracle: Oracle, x: torch.Tensor) -> None:
    oracle.check("aten::var.correction_out", x)
    oracle.check("aten::var_mean.correction_out", x, [0], correction=0, out_dtype=(F32, F32))


# ---- bits as another dtype --------------------------------------------------------------------------

BITS = (U8, I8, I16, I32, I64, F16, BF16, F32, F64, C64, torch.uint16, torch.uint32, torch.float8_e5m2)


@pytest.mark.parametrize(("source", "target"), list(product(BITS, BITS)))
def test_view_as_another_dtype(oracle: Oracle, source: torch.dtype, target: torch.dtype) -> None:
    x = torch.arange(64, dtype=U8).reshape(2, 32).view(source)
    expected = torch.ops.aten.view_copy.dtype(x, target)
    for mode in oracle.modes:
        oracle.compare("aten::view_copy.dtype_out", (x, target), {}, [expected], mode)


def test_view_of_one_number(oracle: Oracle) -> None:
    x = torch.tensor(1.5)
    for mode in oracle.modes:
        oracle.compare("aten::view_copy.dtype_out", (x, I32), {}, [x.view(I32)], mode)
        oracle.compare("aten::lift.out", (x,), {}, [x], mode)


# ---- factories --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tril_indices", "triu_indices"])
@pytest.mark.parametrize("arguments", [(3, 4, 0), (4, 3, 1), (3, 3, -2), (2, 5, 9), (0, 3, 0), (3, 0, 1)])
@pytest.mark.parametrize("dtype", [I32, I64])
def test_triangles(oracle: Oracle, name: str, arguments: tuple[int, ...], dtype: torch.dtype) -> None:
    expected = getattr(torch, name)(*arguments, dtype=dtype)
    for mode in oracle.modes:
        oracle.compare(f"aten::{name}.out", arguments, {}, [expected], mode)


@pytest.mark.parametrize(
    ("op", "arguments"),
    [
        ("aten::empty_strided.out", [[2, 3], [1, 2]]), ("aten::empty_permuted.out", [[2, 3], [1, 0]]),
        ("aten::new_empty_strided.out", [np.zeros(4), [2, 3], [3, 1]]),
    ],
)  # fmt: skip
def test_new_tensors_are_only_resized(oracle: Oracle, op: str, arguments: list[Any]) -> None:
    (out,) = oracle.kernel(op, arguments, [np.zeros((4, 4))], "run")
    assert out.shape == (2, 3)


# ---- refusals ---------------------------------------------------------------------------------------

F, I, C = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int64), np.zeros((2, 3), np.complex64)  # noqa: E741
NORM = "aten::linalg_vector_norm.out"


@pytest.mark.parametrize(
    ("op", "inputs", "outs", "fault", "message"),
    [
        (NORM, [I, 2, None, False, None], [F], InvalidType, "argument 'self' must be floating-point or complex"),
        (NORM, [F, 2, None, False, 5], [F], InvalidType, "argument 'dtype' is float16, which is narrower than"),
        (NORM, [F[:0], np.inf, None, False, None], [F], InvalidArgument, "argument 'self' of shape (0, 3) has no nor"),
        (NORM, [F, 1j, None, False, None], [F], InvalidArgument, "argument 'ord' must be real, but is 1j"),
        (NORM, [F, 2, [2], False, None], [F], InvalidArgument, "argument 'dim' is 2, but the tensor has 2 dimensions"),
        ("aten::dist.out", [I, I, 2], [F], InvalidType, "arguments 'self' int64 and 'other' int64"),
        ("aten::dist.out", [F, F.T, 2], [F], InvalidArgument, "do not broadcast together"),
        ("aten::var.correction_out", [I, None, 1, False], [F], InvalidType, "argument 'self' must be floating-point"),
        ("aten::amax.out", [C, [0], False], [C], InvalidType, "argument 'self' is complex64"),
        ("aten::argmax.out", [C, 0, False], [I], InvalidType, "argument 'self' is complex64"),
        ("aten::view_copy.dtype_out", [F[0, 0:1].reshape(()), 7], [F], InvalidArgument, "argument 'dtype' is float64"),
        ("aten::view_copy.dtype_out", [F, 7], [F], InvalidArgument, "argument 'dtype' is float64, which does not"),
        ("aten::tril_indices.out", [-1, 2, 0], [I], InvalidArgument, "arguments 'row' -1 and 'col' 2 must not be neg"),
        ("aten::empty_strided.out", [[-1], [1]], [F], InvalidArgument, "argument 'size' has a negative dimension"),
    ],
)  # fmt: skip
def test_refused(
    oracle: Oracle, op: str, inputs: list[Any], outs: list[Any], fault: type[Exception], message: str
) -> None:
    oracle.assert_refused(op, inputs, outs, fault, message)
