"""Histograms and counts against torch; tables with bounded rows; pairs taken as complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from plugins.portable.tests.test_cases import F16, F32, F64, I64, U8, inf, nan, of, rand
from tests.kernels.oracle import Oracle

from delegraph.errors import InvalidArgument, InvalidType

I8, I16, I32, BF16 = torch.int8, torch.int16, torch.int32, torch.bfloat16
POINTS = rand(40, 2)
EDGES = [of(-1.0, 0.0, 0.5, 2.0), of(-2.0, 0.0, 3.0)]


@pytest.mark.parametrize("dtype", [F16, BF16, F32, F64])
def test_histc(oracle: Oracle, dtype: torch.dtype) -> None:
    for arguments in ((), (7,), (4, -1, 1), (3, -0.5, 2.5), (5, 2, 2)):
        oracle.check("aten::histc.out", rand(5, 40, dtype=dtype), *arguments)


@pytest.mark.parametrize(
    ("x", "arguments"),
    [
        (of(1.0, 2.0, nan, inf), (2, 0, 3)), (torch.zeros(0), (2,)), (of(1.0, 1.0), (4,)),
        (torch.tensor(0.5), (3, 0, 1)), (torch.linspace(0, 1, 11), (10, 0, 1)),
        (torch.linspace(-3, 3, 1001), (77, -3, 3)),
    ],
)  # fmt: skip
def test_histc_at_edges(oracle: Oracle, x: torch.Tensor, arguments: tuple[Any, ...]) -> None:
    oracle.check("aten::histc.out", x, *arguments)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_histogram(oracle: Oracle, dtype: torch.dtype, density: bool, weighted: bool) -> None:
    x = rand(5, 40, dtype=dtype)
    options = {"weight": rand(5, 40, dtype=dtype).abs() if weighted else None, "density": density}
    oracle.check("aten::histogram.bin_ct_out", x, 7, **options)
    oracle.check("aten::histogram.bin_ct_out", x, 10, range=[-1.0, 1.5], **options)
    oracle.check("aten::histogram.bins_tensor_out", x, of(-1, 0, 0.1, 2).to(dtype), **options)


@pytest.mark.parametrize(
    ("x", "options"),
    [
        (of(1.0, 1.0), {}), (torch.zeros(0), {}), (of(nan, 0.5, 2.0, 1.0), {"range": [0.0, 1.0]}),
        (torch.tensor(3.0), {}),
        (torch.linspace(0, 1, 31), {"range": [0.0, 1.0]}), (of(1.0, 2.0), {"range": [2.0, 2.0]}),
    ],
)  # fmt: skip
def test_histogram_at_edges(oracle: Oracle, x: torch.Tensor, options: dict[str, Any]) -> None:
    oracle.check("aten::histogram.bin_ct_out", x, 10, **options)


@pytest.mark.parametrize("density", [False, True])
@pytest.mark.parametrize("weight", [None, rand(40).abs()])
def test_histogram_of_points(oracle: Oracle, density: bool, weight: torch.Tensor | None) -> None:
    options = {"weight": weight, "density": density}
    oracle.check("aten::_histogramdd_from_bin_cts.out", POINTS, [3, 5], **options)
    oracle.check("aten::_histogramdd_from_bin_cts.out", POINTS, [3, 5], range=[-1.0, 1.0, 0.0, 2.0], **options)
    oracle.check("aten::_histogramdd_from_bin_tensors.out", POINTS, EDGES, **options)


@pytest.mark.parametrize("limits", [None, [-1.0, 1.0, 0.0, 2.0]])
def test_edges_of_points(oracle: Oracle, limits: list[float] | None) -> None:
    expected = torch.ops.aten._histogramdd_bin_edges(POINTS, [3, 5], range=limits)
    for mode in oracle.modes:
        oracle.compare("aten::_histogramdd_bin_edges.out", (POINTS, [3, 5]), {"range": limits}, [expected], mode)


@pytest.mark.parametrize("dtype", [U8, I8, I16, I32, I64])
def test_bincount(oracle: Oracle, dtype: torch.dtype) -> None:
    x = torch.randint(0, 6, (20,)).to(dtype)
    oracle.check("aten::bincount.out", x, out_dtype=I64)
    oracle.check("aten::bincount.out", x, None, 9, out_dtype=I64)
    for weights in (F32, F64):
        oracle.check("aten::bincount.out", x, rand(20, dtype=weights), 3, out_dtype=weights)
    oracle.check("aten::bincount.out", x, torch.arange(20), out_dtype=F64)


def test_bincount_of_nothing(oracle: Oracle) -> None:
    oracle.check("aten::bincount.out", torch.zeros(0, dtype=I64), None, 4, out_dtype=I64)
    oracle.check("aten::bincount.out", torch.zeros(0, dtype=I64), out_dtype=I64)


# ---- tables and pairs -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, F64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("order", [2.0, 1.0, 3.0, inf])
def test_embedding_renorm(oracle: Oracle, dtype: torch.dtype, order: float) -> None:
    for indices in (of(0, 2, 2), of([1, 0], [4, 1]), torch.zeros(0, dtype=I64)):
        oracle.check("aten::embedding_renorm.out", rand(5, 4, dtype=dtype), indices, 1.5, order)


@pytest.mark.parametrize(("dtype", "result"), [(F32, torch.complex64), (F64, torch.complex128)])
def test_pairs_as_complex_numbers(oracle: Oracle, dtype: torch.dtype, result: torch.dtype) -> None:
    for shape in ((2,), (3, 4, 2), (0, 2)):
        oracle.check("aten::view_as_complex_copy.out", rand(*shape, dtype=dtype), out_dtype=result)


# ---- refusals ---------------------------------------------------------------------------------------

F, I = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int64)  # noqa: E741
H = "aten::histogram.bin_ct_out"


@pytest.mark.parametrize(
    ("op", "inputs", "outs", "fault", "message"),
    [
        ("aten::histc.out", [I, 3, 0, 0], [F], InvalidType, "argument 'self' must be floating-point, but is int64"),
        ("aten::histc.out", [F, 0, 0, 0], [F], InvalidArgument, "argument 'bins' must be positive, but is 0"),
        ("aten::histc.out", [F, 3, 2, 1], [F], InvalidArgument, "argument 'max' is 1, but must be larger than 'min'"),
        ("aten::histc.out", [F + np.inf, 3, 0, 0], [F], InvalidArgument, "argument 'self' spans [inf, inf]"),
        (H, [F, 0, None, None, False], [F, F], InvalidArgument, "argument 'bins' must be positive, but is 0"),
        (H, [F, 3, [1.0, 0.0], None, False], [F, F], InvalidArgument, "give the range [1.0, 0.0]"),
        (H, [F, 3, [1.0], None, False], [F, F], InvalidArgument, "argument 'range' must have 2 values"),
        (H, [F, 3, None, F[0], False], [F, F], InvalidArgument, "argument 'weight' has 3 elements"),
        (H, [I, 3, None, None, False], [I, I], InvalidType, "argument 'self' must be floating-point"),
        ("aten::histogram.bins_tensor_out", [F, F, None, False], [F, F], InvalidArgument, "'bins' must have 1 dim"),
        ("aten::_histogramdd_from_bin_cts.out", [F, [2, 2, 2, 2], None, None, False], [F], InvalidArgument,
         "argument 'self' of shape (2, 3) has no 4 coordinates for each point"),
        ("aten::bincount.out", [F, None, 0], [I], InvalidType, "argument 'self' must hold integers, but is float32"),
        ("aten::bincount.out", [I, None, 0], [I], InvalidArgument, "argument 'self' must have 1 dimensions"),
        ("aten::bincount.out", [I[0] - 1, None, 0], [I], InvalidArgument, "argument 'self' holds -1"),
        ("aten::bincount.out", [I[0], None, -1], [I], InvalidArgument, "argument 'minlength' must not be negative"),
        ("aten::bincount.out", [I[0], F, 0], [I], InvalidArgument, "argument 'weights' must have shape (3,)"),
        ("aten::embedding_renorm.out", [F, I + 2, 1.0, 2.0], [F], InvalidArgument, "argument 'indices' holds 2"),
        ("aten::view_as_complex_copy.out", [F], [F], InvalidArgument, "argument 'self' must be pairs of float32"),
    ],
)  # fmt: skip
def test_refused(
    oracle: Oracle, op: str, inputs: list[Any], outs: list[Any], fault: type[Exception], message: str
) -> None:
    oracle.assert_refused(op, inputs, outs, fault, message)
