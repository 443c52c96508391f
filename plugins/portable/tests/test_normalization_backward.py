"""Gradients of normalizations, and inference with running statistics, against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels.oracle import Oracle, to_numpy

from delegraph.errors import InvalidArgument, InvalidType, RuntimeFault

torch.manual_seed(0)

aten = torch.ops.aten
F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
MASKS = [[True, True, True], [True, False, False], [False, True, True], [True, False, True]]


def _compare(oracle: Oracle, op: str, inputs: list[object], expected: list[torch.Tensor], tolerance: float) -> None:
    for mode in oracle.modes:
        for actual, want in oracle.results(op, inputs, {}, expected, mode):
            torch.testing.assert_close(actual, want, rtol=tolerance, atol=tolerance)


def _tolerance(dtype: torch.dtype) -> float:
    return {F64: 1e-12, F32: 1e-5}.get(dtype, 2e-2 if dtype == BF16 else 2e-3)


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16])
@pytest.mark.parametrize(("shape", "inner"), [((3, 4, 5), [5]), ((3, 4, 5), [4, 5]), ((6,), [6]), ((2, 7), [7])])
def test_layer_norm(oracle: Oracle, dtype: torch.dtype, shape: tuple[int, ...], inner: list[int]) -> None:
    grad, x, weight, bias = (torch.randn(s).to(dtype) for s in (shape, shape, inner, inner))
    _, mean, rstd = aten.native_layer_norm(x.double(), inner, None, None, 1e-5)
    mean, rstd = mean.to(dtype), rstd.to(dtype)
    arguments = [grad, x, inner, mean, rstd, weight, bias, [True] * 3]
    exact = aten.native_layer_norm_backward(*(a.double() if isinstance(a, torch.Tensor) else a for a in arguments))
    _compare(oracle, "aten::native_layer_norm_backward.out", arguments, [g.to(dtype) for g in exact], _tolerance(dtype))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("affine", [True, False])
def test_gradients_that_are_not_asked_for_are_left(oracle: Oracle, mask: list[bool], affine: bool) -> None:
    grad, x = torch.randn(3, 5), torch.randn(3, 5)
    weight = torch.rand(5) if affine else None
    _, mean, rstd = aten.native_layer_norm(x, [5], None, None, 1e-5)
    full = aten.native_layer_norm_backward(
        grad, x, [5], mean, rstd, torch.ones(5) if weight is None else weight, torch.ones(5), [True] * 3
    )
    arrays = [None if a is None else to_numpy(a) for a in (mean, rstd, weight)]
    outs = [np.full((3, 5), 7, np.float32), np.full(5, 7, np.float32), np.full(5, 7, np.float32)]
    results = oracle.kernel(
        "aten::native_layer_norm_backward.out",
        [to_numpy(grad), to_numpy(x), [5], *arrays, None, mask],
        outs,
        "bind",
    )
    for actual, expected, asked in zip(results, full, mask, strict=True):
        np.testing.assert_allclose(actual, expected.numpy() if asked else 7, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16])
@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("shape", [(2, 4, 3, 5), (3, 4), (1, 4, 6)])
def test_group_norm(oracle: Oracle, dtype: torch.dtype, group: int, shape: tuple[int, ...]) -> None:
    grad, x, weight = (torch.randn(s).to(dtype) for s in (shape, shape, (4,)))
    n, c, rest = shape[0], shape[1], x.numel() // (shape[0] * shape[1])
    _, mean, rstd = aten.native_group_norm(x.double(), None, None, n, c, rest, group, 1e-5)
    mean, rstd = mean.to(dtype), rstd.to(dtype)
    arguments = [grad, x, mean, rstd, weight, n, c, rest, group, [True] * 3]
    exact = aten.native_group_norm_backward(*(a.double() if isinstance(a, torch.Tensor) else a for a in arguments))
    _compare(oracle, "aten::native_group_norm_backward.out", arguments, [g.to(dtype) for g in exact], _tolerance(dtype))


def test_channels_last_input(oracle: Oracle) -> None:
    x = torch.randn(2, 4, 3, 5).contiguous(memory_format=torch.channels_last)
    grad, weight = torch.randn_like(x), torch.rand(4)
    _, mean, rstd = aten.native_group_norm(x, None, None, 2, 4, 15, 2, 1e-5)
    arguments = [grad, x, mean, rstd, weight, 2, 4, 15, 2, [True] * 3]
    expected = list(aten.native_group_norm_backward(*arguments))
    _compare(oracle, "aten::native_group_norm_backward.out", arguments, expected, 1e-5)


def test_an_empty_batch_has_gradients_of_zero(oracle: Oracle) -> None:
    empty, rows = np.zeros((0, 4), np.float32), np.zeros((0, 1), np.float32)
    outs = [empty.copy(), np.ones(4, np.float32), np.ones(4, np.float32)]
    inputs = [empty, empty, [4], rows, rows, np.ones(4, np.float32), None, [True] * 3]
    _, of_weight, of_bias = oracle.kernel("aten::native_layer_norm_backward.out", inputs, outs, "run")
    assert not of_weight.any()
    assert not of_bias.any()


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_no_update(oracle: Oracle, dtype: torch.dtype, affine: bool) -> None:
    x, mean, var = torch.randn(2, 3, 4, dtype=dtype), torch.randn(3, dtype=dtype), torch.rand(3, dtype=dtype)
    weight, bias = (torch.rand(3, dtype=dtype), torch.rand(3, dtype=dtype)) if affine else (None, None)
    arguments = [x, weight, bias, mean, var, 0.1, 1e-5]
    expected = list(aten._batch_norm_no_update(*arguments))
    _compare(oracle, "aten::_batch_norm_no_update.out", arguments, expected, 1e-5)


X = np.ones((2, 4), np.float32)
ROWS, ROW = X[:, :1], X[0]
LAYER, GROUP = "aten::native_layer_norm_backward.out", "aten::native_group_norm_backward.out"
# fmt: off
REFUSED: list[tuple[str, list[Any], type[RuntimeFault], str]] = [
    (LAYER, [X.T, X, [4], ROWS, ROWS, None, None, [True] * 3], InvalidArgument, "argument 'grad_out' must have shape"),
    (LAYER, [X, X, [4], ROWS, ROWS, None, None, [True]], InvalidArgument, "argument 'output_mask' must have 3 values"),
    (LAYER, [X, X, [3], ROWS, ROWS, None, None, [True] * 3], InvalidArgument, "whose last dims are not [3]"),
    (LAYER, [X, X > 0, [4], ROWS, ROWS, None, None, [True] * 3], InvalidType, "'input' must be floating-point"),
    (GROUP, [X, X, ROWS, ROWS, None, 2, 4, 1, 3, [True] * 3], InvalidArgument, "or no 3 groups"),
    (GROUP, [X, X, ROWS, ROWS, X, 2, 4, 1, 2, [True] * 3], InvalidArgument, "argument 'weight' must have shape (4,)"),
]
# fmt: on


@pytest.mark.parametrize(("op", "inputs", "fault", "message"), REFUSED)
def test_refused(oracle: Oracle, op: str, inputs: list[Any], fault: type[RuntimeFault], message: str) -> None:
    oracle.assert_refused(op, inputs, [X.copy(), ROW.copy(), ROW.copy()], fault, message)


def test_batch_norm_no_update_needs_running_statistics(oracle: Oracle) -> None:
    outs = [X.copy(), ROW.copy(), ROW.copy(), np.zeros(0, np.uint8)]
    with pytest.raises(InvalidArgument, match="arguments 'running_mean' and 'running_var' must be given"):
        oracle.kernel("aten::_batch_norm_no_update.out", [X, None, None, None, None, 0.1, 1e-5], outs, "run")
