"""Boundaries and distinct elements against torch."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from plugins.portable.tests.test_cases import (
    BF16,
    BOOL,
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

I16 = torch.int16
NUMBERS = (U8, I8, I16, I32, I64, F16, BF16, F32, F64)
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
BOUNDS = of(1, 3, 3, 5, 9)
ROWS = of([1.0, 2, 4, 8], [0, 0, 3, inf])

# ---- boundaries -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("right", [False, True])
def test_searchsorted(oracle: Oracle, dtype: torch.dtype, right: bool) -> None:
    values = of([0, 1, 2], [3, 5, 9])
    oracle.check("aten::searchsorted.Tensor_out", BOUNDS.to(dtype), values.to(dtype), right=right, out_dtype=I64)
    oracle.check("aten::bucketize.Tensor_out", values.to(dtype), BOUNDS.to(dtype), right=right, out_dtype=I64)


@pytest.mark.parametrize("options", [{}, {"right": True}, {"side": "left"}, {"side": "right"}])
@pytest.mark.parametrize(
    ("sequence", "values"),
    [
        (ROWS, of([0.0, 3, 9, 4, nan], [0, -1, inf, 3, 1])), (ROWS, torch.zeros(2, 0)), (torch.zeros(0), X),
        (of(1.0, 2, nan, nan), of(3.0, nan, 0.5, inf)), (BOUNDS, of(2.5, 3.0)), (BOUNDS.float(), INTS),
        (BOUNDS, torch.tensor(3)), (BOUNDS, torch.tensor(2.5)), (of(0.5), X), (torch.zeros(2, 0), torch.ones(2, 3)),
        (torch.arange(1000), torch.randint(-5, 1005, (40, 30))), (rand(3, 4, 50).sort(-1).values, rand(3, 4, 6)),
    ],
)  # fmt: skip
def test_searchsorted_at_edges(
    oracle: Oracle, sequence: torch.Tensor, values: torch.Tensor, options: dict[str, Any]
) -> None:
    oracle.check("aten::searchsorted.Tensor_out", sequence, values, **options, out_dtype=I64)


@pytest.mark.parametrize("value", [3, 2.5, 9, inf, True])
def test_searchsorted_of_a_number(oracle: Oracle, value: float) -> None:
    for bounds in (BOUNDS, BOUNDS.float()):
        oracle.check("aten::searchsorted.Scalar_out", bounds, value, out_dtype=I64)
        oracle.check("aten::bucketize.Scalar_out", value, bounds, right=True, out_dtype=I64)


def test_searchsorted_through_a_sorter(oracle: Oracle) -> None:
    rows, values = rand(2, 5), rand(2, 7)
    oracle.check("aten::searchsorted.Tensor_out", rows, values, sorter=rows.argsort(-1), out_dtype=I64)
    oracle.check("aten::searchsorted.Scalar_out", rows[0], 0.1, sorter=rows[0].argsort(), out_dtype=I64)


def test_places_in_int32(oracle: Oracle) -> None:
    oracle.check("aten::searchsorted.Tensor_out", BOUNDS, INTS, out_int32=True, out_dtype=I32)
    oracle.check("aten::bucketize.Tensor_out", INTS, BOUNDS, out_int32=True, out_dtype=I32)


# ---- distinct elements ------------------------------------------------------------------------------


def repeated(dtype: torch.dtype) -> torch.Tensor:
    return torch.randint(0, 2 if dtype == BOOL else 5, (6, 7)).to(dtype)


@pytest.mark.parametrize("dtype", [BOOL, *NUMBERS, *UNSIGNED])
def test_unique(oracle: Oracle, dtype: torch.dtype) -> None:
    x = repeated(dtype)
    for inverse, counts in product((False, True), repeat=2):
        oracle.check("aten::_unique2.out", x, True, inverse, counts, out_dtype=(dtype, I64, I64))
        oracle.check("aten::unique_consecutive.out", x, inverse, counts, out_dtype=(dtype, I64, I64))
    oracle.check("aten::_unique.out", x, True, True, out_dtype=(dtype, I64))


@pytest.mark.parametrize("dtype", [BOOL, *NUMBERS, *UNSIGNED])
@pytest.mark.parametrize("dim", [0, -1])
def test_unique_slices(oracle: Oracle, dtype: torch.dtype, dim: int) -> None:
    x = torch.randint(0, 2, (9, 2) if dim == 0 else (2, 3, 9)).to(dtype)
    oracle.check("aten::unique_dim.out", x, dim, True, True, True, out_dtype=(dtype, I64, I64))
    oracle.check("aten::unique_dim_consecutive.out", x, dim, True, True, out_dtype=(dtype, I64, I64))
    oracle.check("aten::unique_consecutive.out", x, False, False, dim, out_dtype=(dtype, I64, I64))


@pytest.mark.parametrize(
    "x",
    [
        of(nan, 1.0, nan, -0.0, 0.0), SPECIAL, torch.tensor(3), EMPTY, torch.zeros(0, dtype=I64),
        of(1.0, 1.0, nan, nan), torch.randint(0, 40, (2000,)), torch.randint(0, 40, (2000,)).double(),
    ],
)  # fmt: skip
def test_unique_at_edges(oracle: Oracle, x: torch.Tensor) -> None:
    oracle.check("aten::_unique2.out", x, True, True, True, out_dtype=(x.dtype, I64, I64))
    oracle.check("aten::unique_consecutive.out", x, True, True, out_dtype=(x.dtype, I64, I64))


@pytest.mark.parametrize(("inverse", "counts"), list(product((False, True), repeat=2)))
def test_neighbours_of_a_vector_along_its_dim_have_the_planned_shapes(
    oracle: Oracle, inverse: bool, counts: bool
) -> None:
    """torch plans places and counts, asked for or not, though eager torch leaves them empty."""
    x = of(1.0, 1.0, 2.0, 3.0, 3.0)
    expected = list(torch.unique_consecutive(x, return_inverse=True, return_counts=True, dim=0))
    for mode in oracle.modes:
        oracle.compare("aten::unique_consecutive.out", [x, inverse, counts, 0], {}, expected, mode)


def test_unique_slices_at_edges(oracle: Oracle) -> None:
    for x, dim in ((of([nan, 3], [2, 1], [nan, 3]), 0), (of([nan, 3], [2, 1], [nan, 3]), 1), (EMPTY, 0)):
        oracle.check("aten::unique_dim.out", x, dim, True, True, True, out_dtype=(F32, I64, I64))
        oracle.check("aten::unique_dim_consecutive.out", x, dim, True, True, out_dtype=(F32, I64, I64))


# ---- refusals ---------------------------------------------------------------------------------------

F, I, C = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int64), np.zeros((2, 3), np.complex64)  # noqa: E741
ROW, ONE = F[0], np.zeros((), np.float32)


@pytest.mark.parametrize(
    ("op", "inputs", "outs", "fault", "message"),
    [
        ("aten::searchsorted.Tensor_out", [ROW, F, False, False, "middle", None], [I], InvalidArgument,
         "argument 'side' must be one of None, 'left', 'right', but is 'middle'"),
        ("aten::searchsorted.Tensor_out", [ROW, F, False, True, "left", None], [I], InvalidArgument,
         "argument 'side' is 'left', but argument 'right' is true"),
        ("aten::searchsorted.Tensor_out", [ONE, F, False, False, None, None], [I], InvalidArgument,
         "argument 'sorted_sequence' must have at least 1 dimension"),
        ("aten::searchsorted.Tensor_out", [F, ROW, False, False, None, None], [I], InvalidArgument,
         "argument 'sorted_sequence' has shape (2, 3), but 'self' has shape (3,)"),
        ("aten::searchsorted.Scalar_out", [F, 1.0, False, False, None, None], [I], InvalidArgument,
         "argument 'sorted_sequence' has shape (2, 3), but 'self' has shape ()"),
        ("aten::searchsorted.Tensor_out", [ROW, F, False, False, None, I[0] + 3], [I], InvalidArgument,
         "argument 'sorter' points outside of a dimension of size 3"),
        ("aten::searchsorted.Tensor_out", [ROW, F, False, False, None, I], [I], InvalidArgument,
         "argument 'sorter' must have shape (3,), but has shape (2, 3)"),
        ("aten::searchsorted.Tensor_out", [ROW, C, False, False, None, None], [I], InvalidType, "must be real"),
        ("aten::bucketize.Tensor_out", [F, F, False, False], [I], InvalidArgument,
         "argument 'boundaries' must have 1 dimensions, but has shape (2, 3)"),
        ("aten::_unique2.out", [C, True, True, True], [C, I, I], InvalidType, "argument 'self' is complex64"),
        ("aten::unique_dim.out", [ONE, 0, True, True, True], [F, I, I], InvalidArgument, "is a 0-d tensor"),
        ("aten::unique_dim.out", [F[:, :0], 0, True, True, True], [F, I, I], InvalidArgument, "has empty slices"),
        ("aten::unique_dim.out", [F, 2, True, True, True], [F, I, I], InvalidArgument, "argument 'dim' is 2"),
    ],
)  # fmt: skip
def test_refused(
    oracle: Oracle, op: str, inputs: list[Any], outs: list[Any], fault: type[Exception], message: str
) -> None:
    oracle.assert_refused(op, inputs, outs, fault, message)
