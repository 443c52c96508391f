"""Attention and the encoder layer against torch's own fused operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels.oracle import Oracle

from delegraph.errors import InvalidArgument, InvalidType

torch.manual_seed(0)

F32, F64, F16, BF16 = torch.float32, torch.float64, torch.float16, torch.bfloat16
N, T, D, HEADS, HIDDEN = 2, 5, 8, 2, 12
X, Y, Z = (torch.randn(N, T, D) for _ in range(3))
PROJECTIONS = [torch.randn(3 * D, D) / 3, torch.randn(3 * D), torch.randn(D, D) / 3, torch.randn(D)]
NORMS = [torch.randn(D) for _ in range(4)]
NET = [torch.randn(HIDDEN, D) / 3, torch.randn(HIDDEN), torch.randn(D, HIDDEN) / 3, torch.randn(D)]
CAUSAL = torch.ones(T, T, dtype=torch.bool).triu(1)
PADDING = torch.tensor([[False] * 3 + [True] * 2, [True] * T])  # nothing of the second is seen: NaN
MASKS: list[tuple[torch.Tensor | None, int | None]] = [
    (None, None),
    (CAUSAL, 0),
    (PADDING, 1),
    (torch.rand(N, HEADS, T, T) > 0.7, 2),
]


def cast(tensors: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    return [t.to(dtype) for t in tensors]


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16])
@pytest.mark.parametrize(("mask", "mask_type"), MASKS)
@pytest.mark.parametrize("average", [False, True])
def test_attention(oracle: Oracle, dtype: torch.dtype, mask: torch.Tensor, mask_type: int, average: bool) -> None:
    for inputs in ([X, X, X], [X, Y, Y], [X, Y, Z]):
        weights = cast(PROJECTIONS, dtype)
        arguments = [*cast(inputs, dtype), D, HEADS, *weights, mask, True, average, mask_type]
        oracle.check("aten::_native_multi_head_attention.out", *arguments)


@pytest.mark.parametrize("mode", ["run", "bind"])
def test_attention_without_its_weights(oracle: Oracle, mode: str) -> None:
    """torch gives no tensor for them, so its out overload cannot be asked."""
    arguments = [X, X, X, D, HEADS, *PROJECTIONS, None, False]
    expected, nothing = torch.ops.aten._native_multi_head_attention(*arguments)
    assert nothing is None
    oracle.compare("aten::_native_multi_head_attention.out", arguments, {}, [expected, torch.ones(0)], mode)


@pytest.mark.parametrize("dtype", [F32, F64, F16, BF16])
@pytest.mark.parametrize(("mask", "mask_type"), MASKS)
@pytest.mark.parametrize("use_gelu", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer(
    oracle: Oracle, dtype: torch.dtype, mask: torch.Tensor, mask_type: int, use_gelu: bool, norm_first: bool
) -> None:
    arguments = [X.to(dtype), D, HEADS, *cast(PROJECTIONS, dtype), use_gelu, norm_first, 1e-5]
    arguments += [*cast(NORMS, dtype), *cast(NET, dtype), mask, mask_type]
    oracle.check("aten::_transformer_encoder_layer_fwd.out", *arguments)


A = np.zeros((N, T, D), np.float32)
W = [p.numpy() for p in PROJECTIONS]
B = np.zeros((T, T), np.bool_)


@pytest.mark.parametrize(
    ("changed", "fault", "message"),
    [
        ({0: A[0]}, InvalidArgument, "argument 'query' must have 3 dimensions"),
        ({1: A[:, :3]}, InvalidArgument, "argument 'key' must have shape (2, 5, 8)"),
        ({4: 3}, InvalidArgument, "argument 'query' of shape (2, 5, 8) has no 3 heads of 8 numbers"),
        ({5: W[0][:D]}, InvalidArgument, "argument 'qkv_weight' must have shape (24, 8)"),
        ({8: W[3].astype(np.float64)}, InvalidType, "argument 'proj_bias' is float64"),
        ({9: A[0], 12: 0}, InvalidType, "argument 'mask' must be bool, but is float32"),
        ({9: B, 12: None}, InvalidArgument, "argument 'mask_type' must be one of 0, 1, 2, but is None"),
        ({9: B, 12: 1}, InvalidArgument, "argument 'mask' must have shape (2, 5)"),
    ],
)
def test_refused(oracle: Oracle, changed: dict[int, Any], fault: type[Exception], message: str) -> None:
    arguments = [A, A, A, D, HEADS, *W, None, True, True, None]
    for position, value in changed.items():
        arguments[position] = value
    op = "aten::_native_multi_head_attention.out"
    oracle.assert_refused(op, arguments, [A.copy(), A.copy()], fault, message)
