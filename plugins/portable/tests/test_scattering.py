"""Writing by index tensors, masks and views against torch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from plugins.portable.tests.test_cases import (
    BF16,
    BOOL,
    C64,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    IMAGE,
    INTS,
    LAST,
    MASK,
    U8,
    X,
    inf,
    nan,
    of,
    rand,
)
from tests.kernels.oracle import Oracle, to_numpy

from delegraph.errors import InvalidArgument, InvalidType

I16, C128 = torch.int16, torch.complex128
REAL = (U8, I8, I16, I32, I64, F16, BF16, F32, F64)
ANY = (*REAL, BOOL, C64, C128)
ONE_D = of(0, 0, 2, 2, 2, 1)


def some(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    """Small numbers, whose sums and products are exact in every dtype."""
    return torch.randint(0, 3, shape).to(dtype)


# ---- reductions at places ---------------------------------------------------------------------------


def allowed(reduce: str, dtype: torch.dtype) -> bool:
    return not (dtype.is_complex and reduce in ("amax", "amin")) and not (dtype == BOOL and reduce == "mean")


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", ANY)
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_reduce(oracle: Oracle, reduce: str, dtype: torch.dtype, include_self: bool) -> None:
    if not allowed(reduce, dtype):
        return
    x, src = some(4, 5, dtype=dtype), some(3, 4, dtype=dtype)
    for dim in (0, 1, -1):
        index = torch.randint(0, 4, (3, 4))
        oracle.check("aten::scatter_reduce.two_out", x, dim, index, src, reduce, include_self=include_self)


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize(
    ("x", "dim", "index", "src"),
    [
        (of(1.0, 2, 3), 0, ONE_D, of(nan, 1.0, inf, -inf, 2.0, nan)), (INTS, 0, ONE_D, of(-7, -8, -9, 2, 3, -5)),
        (torch.tensor(1.0), 0, torch.tensor(0), torch.tensor(3.0)), (X, 0, torch.zeros(0, 4, dtype=I64), X),
        (X, 0, torch.zeros(0, 4, dtype=I64), of(1.0)),
        (torch.tensor(1.0), 0, of(0, 0), of(3.0, 4.0)), (LAST, 1, torch.zeros(2, 4, 7, 6, dtype=I64), IMAGE),
        (rand(2, 3, 4), 1, torch.randint(0, 3, (2, 9, 4)), rand(2, 9, 4)),
    ],
)  # fmt: skip
def test_scatter_reduce_at_edges(
    oracle: Oracle, reduce: str, include_self: bool, x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor
) -> None:
    oracle.check("aten::scatter_reduce.two_out", x, dim, index, src, reduce, include_self=include_self)


@pytest.mark.parametrize("reduce", ["add", "multiply"])
@pytest.mark.parametrize("dtype", ANY)
def test_scatter_with_a_function(oracle: Oracle, reduce: str, dtype: torch.dtype) -> None:
    x, index, src = some(4, 5, dtype=dtype), torch.randint(0, 4, (3, 4)), some(3, 4, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of the older names
        oracle.check("aten::scatter.reduce_out", x, 0, index, src, reduce=reduce)
        oracle.check("aten::scatter.value_reduce_out", x, 1, index, 1, reduce=reduce)


@pytest.mark.parametrize("dtype", ANY)
def test_scatter_add(oracle: Oracle, dtype: torch.dtype) -> None:
    oracle.check(
        "aten::scatter_add.out", some(4, 5, dtype=dtype), 1, torch.randint(0, 5, (4, 5)), some(4, 5, dtype=dtype)
    )


@pytest.mark.parametrize("dtype", ANY)
def test_scatter_to_distinct_places(oracle: Oracle, dtype: torch.dtype) -> None:
    index = torch.stack([torch.randperm(5) for _ in range(4)])
    oracle.check("aten::scatter.src_out", some(4, 5, dtype=dtype), 1, index, some(4, 5, dtype=dtype))
    oracle.check("aten::gather.out", some(4, 5, dtype=dtype), 1, index)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("include_self", [True, False])
def test_index_reduce(oracle: Oracle, reduce: str, dtype: torch.dtype, include_self: bool) -> None:
    x, options = some(4, 5, dtype=dtype), {"include_self": include_self}
    oracle.check("aten::index_reduce.out", x, 0, of(0, 2, 2), some(3, 5, dtype=dtype), reduce, **options)
    oracle.check("aten::index_reduce.out", x, -1, of(4, 4, dtype=I32), some(4, 2, dtype=dtype), reduce, **options)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
def test_index_reduce_at_edges(oracle: Oracle, reduce: str) -> None:
    for x, dim, index, source in (
        (torch.tensor(2.0), 0, of(0), torch.tensor(3.0)),
        (X, 0, torch.zeros(0, dtype=I64), torch.zeros(0, 4)),
        (rand(2, 3, 4), 1, of(1, 1, 1, 0), rand(2, 4, 4)),
        (INTS, 0, of(0, 0, 0, 1), of(-3, -8, 5, 1)),
    ):
        oracle.check("aten::index_reduce.out", x, dim, index, source, reduce)


def test_rows_of_many_additions(oracle: Oracle) -> None:
    index, src = torch.randint(0, 50, (2000, 1)).expand(-1, 8), torch.randint(-9, 9, (2000, 8)).float()
    oracle.check("aten::scatter_add.out", torch.zeros(50, 8), 0, index, src)
    oracle.check("aten::index_put.out", torch.zeros(50, 8), [index[:, 0]], src, True)


# ---- several index tensors --------------------------------------------------------------------------


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", ANY)
def test_index_put(oracle: Oracle, accumulate: bool, dtype: torch.dtype) -> None:
    for indices, shape in (([of(0, 3)], (2, 5)), ([of(0, 3, 1), of(1, -1, 2)], (3,)), ([None, of(2, 0)], (4, 2))):
        oracle.check("aten::index_put.out", some(4, 5, dtype=dtype), indices, some(*shape, dtype=dtype), accumulate)


@pytest.mark.parametrize(
    ("indices", "shape"),
    [
        ([of(0, 1, 1), None, of(3, 3, 3)], (3, 3)), ([None, of(0, 0), of(1, 1)], (2, 2)), ([of(1, 1)], (1, 3, 1)),
        ([None, None, of([1, 1], [0, -1])], (2, 3, 2, 2)), ([of([0], [1]), of(2, 2)], (2, 2, 4)), ([of(0, 0)], ()),
        ([torch.ones(2, 3, dtype=BOOL)], (6, 4)), ([None, of(True, False, True), of(1, 1)], (2, 2)),
        ([torch.tensor(1), None, torch.tensor(0)], (3,)), ([torch.zeros(0, dtype=I64)], (0, 3, 4)),
    ],
)  # fmt: skip
def test_index_put_accumulates_in_any_arrangement(
    oracle: Oracle, indices: list[torch.Tensor | None], shape: tuple[int, ...]
) -> None:
    oracle.check("aten::index_put.out", rand(2, 3, 4), indices, rand(*shape), True)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dtype", [BOOL, I64, F16, F32, C64])
def test_put(oracle: Oracle, accumulate: bool, dtype: torch.dtype) -> None:
    x = some(3, 4, dtype=dtype)
    oracle.check("aten::put.out", x, of([0, 5], [-1, 7]), some(2, 2, dtype=dtype), accumulate)
    oracle.check("aten::put.out", x, torch.zeros(0, dtype=I64), torch.zeros(0, dtype=dtype), accumulate)
    oracle.check("aten::put.out", torch.ones((), dtype=dtype), of(0), torch.zeros(1, dtype=dtype), accumulate)
    if accumulate:
        oracle.check("aten::put.out", x, of(1, 1, 1, -12), torch.ones(4, dtype=dtype), True)


@pytest.mark.parametrize("dtype", ANY)
def test_masked_scatter(oracle: Oracle, dtype: torch.dtype) -> None:
    oracle.check("aten::masked_scatter.out", some(3, 4, dtype=dtype), MASK, some(9, dtype=dtype))
    oracle.check("aten::masked_scatter.out", some(4, dtype=dtype), MASK, some(9, dtype=dtype))


def test_nonzero_static(oracle: Oracle) -> None:
    for x in (
        of([1, 2], [3, 0]),
        of([True, False], [False, True]),
        of(0.0, nan, -0.0),
        torch.tensor(1),
        torch.zeros(0, 3),
    ):
        for size, fill in ((0, -1), (2, -1), (5, 9)):
            if x.ndim or size:
                oracle.check("aten::nonzero_static.out", x, size=size, fill_value=fill, out_dtype=I64)


# ---- views ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, BF16, BOOL, I64, C64])
@pytest.mark.parametrize("arguments", [(0, 0, 1), (1, 0, 1), (-2, 1, 0), (0, -1, 0), (9, 0, 1)])
def test_diagonal_scatter(oracle: Oracle, dtype: torch.dtype, arguments: tuple[int, ...]) -> None:
    for x in (some(4, 5, dtype=dtype), some(4, 5, 6, dtype=dtype)):
        src = torch.full_like(x.diagonal(*arguments), 1)
        oracle.check("aten::diagonal_scatter.out", x, src, *arguments)


@pytest.mark.parametrize("dtype", [F32, BF16, BOOL, I64, C64])
def test_select_and_slice_scatter(oracle: Oracle, dtype: torch.dtype) -> None:
    x = some(4, 5, dtype=dtype)
    oracle.check("aten::select_scatter.out", x, some(4, dtype=dtype), 1, -2)
    oracle.check("aten::slice_scatter.out", x, some(2, 5, dtype=dtype), 0, 1, None, 2)
    oracle.check("aten::slice_scatter.out", x, some(4, 2, dtype=dtype), -1, -2, 99)


@pytest.mark.parametrize("mode", ["run", "bind", "constant"])
@pytest.mark.parametrize("dtype", [F32, BF16, BOOL, I64, C64])
def test_as_strided_scatter(oracle: Oracle, dtype: torch.dtype, mode: str) -> None:
    for x, size, stride, offset in (
        (some(4, 5, dtype=dtype), (2, 2), (5, 2), 3), (some(4, 5, dtype=dtype), (3,), (6,), None),
        (some(4, 5, dtype=dtype).t(), (2, 2), (1, 5), 4), (some(3, dtype=dtype), (0, 2), (1, 1), None),
        (torch.ones((), dtype=dtype), (), (), 0),
    ):  # fmt: skip
        src = torch.ones(size, dtype=dtype)
        expected = torch.as_strided_scatter(x, src, size, stride, offset)
        oracle.compare("aten::as_strided_scatter.out", (x, src, size, stride, offset), {}, [expected], mode)


# ---- refusals ---------------------------------------------------------------------------------------

F, I, B, C = (np.zeros((2, 3), t) for t in (np.float32, np.int64, np.bool_, np.complex64))  # noqa: E741
ONE = np.zeros((), np.float32)


@pytest.mark.parametrize(
    ("op", "inputs", "outs", "fault", "message"),
    [
        ("aten::scatter_reduce.two_out", [F, 0, I, F, "max", True], [F], InvalidArgument,
         "argument 'reduce' must be one of 'sum', 'prod', 'mean', 'amax', 'amin', but is 'max'"),
        ("aten::scatter_reduce.two_out", [F, 0, I + 2, F, "sum", True], [F], InvalidArgument,
         "argument 'index' holds 2, but the dimension has size 2"),
        ("aten::scatter_reduce.two_out", [F, 0, I - 1, F, "sum", True], [F], InvalidArgument,
         "argument 'index' holds -1, but the dimension has size 2"),
        ("aten::scatter_reduce.two_out", [F, 0, F, F, "sum", True], [F], InvalidType,
         "argument 'index' must hold integers, but is float32"),
        ("aten::scatter_reduce.two_out", [F, 0, I, I, "sum", True], [F], InvalidType,
         "argument 'src' is int64, but argument 'self' is float32"),
        ("aten::scatter_reduce.two_out", [C, 0, I, C, "amax", True], [C], InvalidType,
         "argument 'self' is complex64: complex numbers have no order"),
        ("aten::scatter_reduce.two_out", [B, 0, I, B, "mean", True], [B], InvalidType, "of which there is no mean"),
        ("aten::scatter.reduce_out", [F, 0, I, F, "sum"], [F], InvalidArgument,
         "argument 'reduce' must be one of 'add', 'multiply', but is 'sum'"),
        ("aten::index_reduce.out", [F, 0, I[0], F, "prod", True], [F], InvalidArgument,
         "argument 'source' must have shape (3, 3), but has shape (2, 3)"),
        ("aten::index_reduce.out", [F, 0, I, F, "prod", True], [F], InvalidArgument,
         "argument 'index' must have 0 or 1 dimensions"),
        ("aten::index_reduce.out", [F, 0, I[0, :2] + 5, F, "prod", True], [F], InvalidArgument, "'index' holds 5"),
        ("aten::index_reduce.out", [F, 0, I[0, :2], F, "sum", True], [F], InvalidArgument, "argument 'reduce' must be"),
        ("aten::index_put.out", [F, [I[0, :1] + 2], F[:1], True], [F], InvalidArgument, "argument 'indices' holds 2"),
        ("aten::put.out", [F, I, F[0], True], [F], InvalidArgument, "argument 'index' has 6 elements, but argu"),
        ("aten::put.out", [F, I[0] + 6, F[0], True], [F], InvalidArgument, "argument 'index' holds 6"),
        ("aten::diagonal_scatter.out", [F, F, 0, 0, 1], [F], InvalidArgument,
         "argument 'src' must have shape (2,), but has shape (2, 3)"),
        ("aten::as_strided_scatter.out", [F, F[0], [3], [3], 0], [F], InvalidArgument, "the view reaches element 6"),
        ("aten::as_strided_scatter.out", [F, F, [3], [3], 0], [F], InvalidArgument, "'src' must have shape (3,)"),
        ("aten::nonzero_static.out", [F, -1, 0], [I], InvalidArgument, "argument 'size' must not be negative"),
    ],
)  # fmt: skip
def test_refused(
    oracle: Oracle, op: str, inputs: list[Any], outs: list[Any], fault: type[Exception], message: str
) -> None:
    oracle.assert_refused(op, inputs, outs, fault, message)


def test_an_index_is_checked_each_time_that_a_bound_call_runs(oracle: Oracle) -> None:
    index, out = np.array([0, 1]), np.zeros(2, np.float32)
    call = oracle.bind("aten::scatter_add.out", [to_numpy(torch.zeros(2)), 0, index, np.ones(2, np.float32)], [out])
    call()
    assert out.tolist() == [1, 1]
    index[1] = 2
    with pytest.raises(InvalidArgument, match="argument 'index' holds 2"):
        call()
