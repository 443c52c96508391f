"""Quantized kernels against torch's reference implementation, and against their formulae where torch has none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers torch's reference implementation
from tests.kernels.oracle import TORCH_DTYPES, Oracle, strided, to_numpy, to_torch

from delegraph.errors import InvalidArgument, InvalidType, RuntimeFault

torch.manual_seed(0)

Array = np.ndarray[Any, Any]
reference = torch.ops.quantized_decomposed
inf, nan = math.inf, math.nan
U8, I8, U16, I16, I32 = torch.uint8, torch.int8, torch.uint16, torch.int16, torch.int32
F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
QUANTIZED = (U8, I8, U16, I16, I32)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
TIES = torch.tensor([0.0, -0.0, 0.25, 0.75, -0.25, -0.75, 1.25, 1e4, -1e4, inf, -inf, nan, 30.1, -17.3])


def limits(dtype: torch.dtype) -> tuple[int, int]:
    info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    return int(info.min), int(info.max)


def code(dtype: torch.dtype) -> int:
    return int(TORCH_DTYPES[dtype])


def quantized(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    low, high = limits(dtype)
    return torch.randint(low, high + 1, shape, dtype=torch.int64).to(dtype)


def check(oracle: Oracle, op: str, inputs: Sequence[Any], *expected: torch.Tensor, rtol: float | None = None) -> None:
    """Assert that the kernel of `op` gives `expected` in every mode. A dtype among the inputs stands for its code."""
    for mode in oracle.modes:
        place = strided if mode == "strided" else np.array
        arrays = [
            place(to_numpy(i)) if isinstance(i, torch.Tensor) else code(i) if isinstance(i, torch.dtype) else i
            for i in inputs
        ]
        outs = [place(np.ones_like(to_numpy(w))) for w in expected]
        for actual, want in zip(
            oracle.kernel(f"quantized_decomposed::{op}", arrays, outs, mode), expected, strict=True
        ):
            result = to_torch(actual)
            assert result.dtype == want.dtype
            if want.dtype in (*QUANTIZED, *FLOAT8):
                result, want = result.to(F64), want.to(F64)
            limit = {} if rtol is None else {"rtol": rtol, "atol": 1e-5}
            torch.testing.assert_close(result, want, equal_nan=True, **limit)


# ---- quantize and dequantize -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*QUANTIZED[:4], *FLOAT8])
@pytest.mark.parametrize("scale", [0.5, 0.1, 1e-3])
def test_quantize_per_tensor(oracle: Oracle, dtype: torch.dtype, scale: float) -> None:
    low, high = limits(dtype)
    for x in (TIES, torch.randn(3, 4, 5), torch.randn(4).to(F16), torch.randn(4).to(BF16), torch.zeros(0, 2)):
        for zero_point, bounds in ((0, (low, high)), (7, (max(low, -20), 20))):
            expected = reference.quantize_per_tensor(x, scale, zero_point, *bounds, dtype)
            check(oracle, "quantize_per_tensor.out", [x, scale, zero_point, *bounds, dtype], expected)
            tensors = [x, torch.tensor([scale], dtype=F64), torch.tensor([zero_point])]
            check(oracle, "quantize_per_tensor.Tensor_out", [*tensors, *bounds, dtype], expected)


def test_quantize_to_int32_saturates(oracle: Oracle) -> None:
    """torch's reference wraps around: it clamps in float32, where the largest int32 is rounded up."""
    low, high = limits(I32)
    x = torch.tensor([1e30, -1e30, 1.0, 16777217.0, nan])
    expected = torch.tensor([high, low, 12, 167772165, 0], dtype=I32)
    ((actual),) = oracle.kernel(
        "quantized_decomposed::quantize_per_tensor.out",
        [to_numpy(x), 0.1, 2, low, high, code(I32)], [np.zeros(5, np.int32)], "run",
    )  # fmt: skip
    assert to_torch(actual)[[0, 1, 2, 4]].tolist() == expected[[0, 1, 2, 4]].tolist()
    assert abs(int(actual[3]) - 167772162) <= 16  # as exact as float32


@pytest.mark.parametrize("dtype", [*QUANTIZED, *FLOAT8])
@pytest.mark.parametrize("out_dtype", [None, F32, F64])
def test_dequantize_per_tensor(oracle: Oracle, dtype: torch.dtype, out_dtype: torch.dtype | None) -> None:
    bounds = limits(dtype)
    for q in (quantized(3, 4, 5, dtype=dtype), quantized(dtype=dtype), quantized(0, 2, dtype=dtype)):
        expected = reference.dequantize_per_tensor(q, 0.1, 3, *bounds, dtype, out_dtype=out_dtype)
        check(oracle, "dequantize_per_tensor.out", [q, 0.1, 3, *bounds, dtype, out_dtype], expected)
        tensors = [q, torch.tensor([0.1], dtype=F64), torch.tensor([3])]
        check(oracle, "dequantize_per_tensor.Tensor_out", [*tensors, *bounds, dtype, out_dtype], expected)


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_dequantize_to_halves_rounds_once(oracle: Oracle, dtype: torch.dtype) -> None:
    q = quantized(50, dtype=I8)
    expected = reference.dequantize_per_tensor(q, 0.037, 3, -128, 127, I8).to(dtype)
    check(oracle, "dequantize_per_tensor.out", [q, 0.037, 3, -128, 127, I8, dtype], expected)


@pytest.mark.parametrize("dtype", [U8, I8, I16])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("precision", [F32, F64])
def test_per_channel(oracle: Oracle, dtype: torch.dtype, axis: int, precision: torch.dtype) -> None:
    low, high = limits(dtype)
    x = torch.randn(3, 4, 5) * 5
    scales = torch.rand(x.shape[axis], dtype=precision) / 5 + 0.05
    zero_points = torch.randint(0, 9, (x.shape[axis],))
    expected = reference.quantize_per_channel(x, scales, zero_points, axis, low, high, dtype)
    check(oracle, "quantize_per_channel.out", [x, scales, zero_points, axis, low, high, dtype], expected)
    for offsets in (zero_points, None):
        real = reference.dequantize_per_channel(expected, scales, offsets, axis, low, high, dtype)
        check(oracle, "dequantize_per_channel.out", [expected, scales, offsets, axis, low, high, dtype, None], real)


@pytest.mark.parametrize("dtype", [U8, I8])
@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 4), (5,), (0, 4)])
def test_per_token(oracle: Oracle, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    low, high = limits(dtype)
    x = torch.randn(shape) * 5
    scales = torch.rand((*shape[:-1], 1), dtype=F64) / 5 + 0.05
    zero_points = torch.randint(0, 9, (*shape[:-1], 1))
    expected = reference.quantize_per_token(x, scales, zero_points, low, high, dtype)
    check(oracle, "quantize_per_token.out", [x, scales, zero_points, low, high, dtype], expected)
    real = reference.dequantize_per_token(expected, scales, zero_points, low, high, dtype, F32)
    check(oracle, "dequantize_per_token.out", [expected, scales, zero_points, low, high, dtype, F32], real)


def test_ties_are_rounded_before_or_after_the_zero_point(oracle: Oracle) -> None:
    """Half to even: with an odd zero point the order matters, and per-token kernels have the other one."""
    x = torch.tensor([[0.5, 1.5, 2.5]])
    unit, three = torch.ones(1, dtype=F64), torch.tensor([3])
    before = reference.quantize_per_channel(x, unit, three, 0, -128, 127, I8)
    after = reference.quantize_per_token(x, unit[None], three[None], -128, 127, I8)
    assert before.tolist() != after.tolist()
    check(oracle, "quantize_per_channel.out", [x, unit, three, 0, -128, 127, I8], before)
    check(oracle, "quantize_per_token.out", [x, unit[None], three[None], -128, 127, I8], after)


@pytest.mark.parametrize("group_size", [2, 4, 8, 100])
def test_per_channel_group(oracle: Oracle, group_size: int) -> None:
    x = torch.randn(3, 8) * 3
    groups = (3, max(8 // group_size, 1))
    scales, zero_points = torch.rand(groups) / 5 + 0.05, torch.randint(-3, 4, groups, dtype=I32)
    expected = reference.quantize_per_channel_group(x, scales, zero_points, -8, 7, I8, group_size)
    check(oracle, "quantize_per_channel_group.out", [x, scales, zero_points, -8, 7, I8, group_size], expected)
    for offsets in (zero_points, None):
        real = reference.dequantize_per_channel_group(expected, scales, offsets, -8, 7, I8, group_size, F32)
        inputs = [expected, scales, offsets, -8, 7, I8, group_size, F32]
        check(oracle, "dequantize_per_channel_group.out", inputs, real)


# ---- scales and zero points --------------------------------------------------------------------------

TENSORS = [
    torch.randn(5, 6), torch.rand(7) + 1, -torch.rand(7) - 1, torch.zeros(2, 3), torch.randn(2, 3, 4).to(BF16).float(),
    torch.tensor([1e-9, -1e-9]), torch.tensor(2.5),
]  # fmt: skip


@pytest.mark.parametrize("x", TENSORS)
@pytest.mark.parametrize(("dtype", "bounds"), [(I8, (-128, 127)), (U8, (0, 255)), (I8, (-127, 127))])
def test_choose_qparams(oracle: Oracle, x: torch.Tensor, dtype: torch.dtype, bounds: tuple[int, int]) -> None:
    for name in ("choose_qparams", "choose_qparams_symmetric"):
        expected = getattr(reference, name).tensor(x, *bounds, 1e-6, dtype)
        check(oracle, f"{name}.Tensor_out", [x, *bounds, 1e-6, dtype], *expected)


@pytest.mark.parametrize("x", [t for t in TENSORS if t.ndim])
def test_choose_qparams_per_token(oracle: Oracle, x: torch.Tensor) -> None:
    expected = reference.choose_qparams_per_token_asymmetric(x, I8)
    check(oracle, "choose_qparams_per_token_asymmetric.out", [x, I8], *expected)


# ---- sums, embeddings and products -------------------------------------------------------------------


def test_add_is_what_dequantized_tensors_give(oracle: Oracle) -> None:
    a, b = quantized(3, 40, dtype=U8), quantized(3, 40, dtype=U8)
    left, right, out = (0.1, 3, 0, 255), (0.07, 100, 0, 255), (0.15, 40, 10, 200)
    total = reference.dequantize_per_tensor(a, *left, U8) + reference.dequantize_per_tensor(b, *right, U8)
    expected = reference.quantize_per_tensor(total, *out, U8)
    check(oracle, "add.out", [a, *left, b, *right, *out], expected)


WEIGHT = quantized(6, 8, dtype=U8)
INDICES = torch.tensor([[0, 5, 2], [1, 1, 3]])


def _unpack(name: str, weight: torch.Tensor) -> torch.Tensor:
    """ExecuTorch's packing: the first of two is the high half of a byte, the first of four its lowest two bits."""
    if name == "embedding_byte":
        return weight.view(I8).double()
    parts = [weight >> 4, weight & 15] if name == "embedding_4bit" else [weight >> s & 3 for s in (0, 2, 4, 6)]
    return torch.stack(parts, -1).flatten(1).double() - (8 if name == "embedding_4bit" else 2)


@pytest.mark.parametrize("name", ["embedding_byte", "embedding_4bit", "embedding_2bit"])
@pytest.mark.parametrize("dtype", [F32, F16, BF16])
@pytest.mark.parametrize("groups", [None, 1, 4])
@pytest.mark.parametrize("offset", [True, False])
def test_embedding(oracle: Oracle, name: str, dtype: torch.dtype, groups: int | None, offset: bool) -> None:
    rows = _unpack(name, WEIGHT)
    bounds = {"embedding_byte": (-128, 127), "embedding_4bit": (-8, 7), "embedding_2bit": (-2, 1)}[name]
    shape = (6,) if groups is None else (6, groups)
    scales = (torch.rand(shape) + 0.1).to(dtype)
    zero_points = torch.randint(-4, 5, shape).to(dtype) if offset else None
    wide = [t.double().reshape(6, -1).repeat_interleave(rows.shape[1] // (groups or 1), 1)
            for t in (scales, zero_points if zero_points is not None else torch.zeros(shape))]  # fmt: skip
    weight = WEIGHT.view(I8) if name == "embedding_byte" else WEIGHT
    for indices in (INDICES, INDICES.to(I32), torch.tensor(4), torch.zeros(0, dtype=torch.int64)):
        expected = ((rows - wide[1]) * wide[0])[indices.long()].to(dtype)
        inputs = [weight, scales, zero_points, *bounds, indices]
        check(oracle, f"{name}.out", inputs, expected)
        check(oracle, f"{name}.dtype_out", [*inputs, dtype], expected)
        check(oracle, f"{name}.dtype_out", [*inputs, None], expected)


def test_embedding_of_unsigned_bytes(oracle: Oracle) -> None:
    expected = (WEIGHT.double() - 128)[INDICES].float() * 0.5
    check(
        oracle,
        "embedding_byte.out",
        [WEIGHT, torch.full((6,), 0.5), torch.full((6,), 128.0), 0, 255, INDICES],
        expected,
    )


@pytest.mark.parametrize("dtype", [F32, F16])
@pytest.mark.parametrize("groups", [None, 1, 2, 3])
def test_mixed_linear(oracle: Oracle, dtype: torch.dtype, groups: int | None) -> None:
    """The last of three groups of eight columns is shorter."""
    x, weight = torch.randn(5, 8).to(dtype), quantized(6, 8, dtype=I8)
    scales = torch.rand((6,) if groups is None else (6, groups)).to(dtype)
    size = 8 if groups is None else -(-8 // groups)
    wide = scales.double().reshape(6, -1).repeat_interleave(size, 1)[:, :8]
    expected = x.double() @ (weight.double() * wide).T
    check(oracle, "mixed_linear.out", [x, weight, scales, None, None], expected.to(dtype), rtol=1e-3)
    check(oracle, "mixed_linear.out", [x, weight, scales, None, F32], expected.float(), rtol=1e-5)


def test_mixed_mm(oracle: Oracle) -> None:
    x, weight, scales = torch.randn(5, 6), quantized(6, 8, dtype=I8), torch.rand(6)
    offsets = torch.randint(-4, 5, (6,)).float()
    expected = x.double() @ (weight.double() * scales.double()[:, None])
    check(oracle, "mixed_mm.out", [x, weight, scales, None], expected.float(), rtol=1e-5)
    expected = x.double() @ ((weight.double() - offsets.double()[:, None]) * scales.double()[:, None])
    check(oracle, "mixed_mm.out", [x, weight, scales, offsets], expected.float(), rtol=1e-5)


# ---- refusals ----------------------------------------------------------------------------------------

X = np.ones((2, 4), np.float32)
Q = np.ones((2, 4), np.int8)
ONE, ZERO = np.ones(2), np.zeros(2, np.int64)
# fmt: off
REFUSED: list[tuple[str, list[Any], list[Array], type[RuntimeFault], str]] = [
    ("quantize_per_tensor.out", [Q, 0.1, 0, -128, 127, 1], [Q], InvalidType, "'input' must be floating-point"),
    ("quantize_per_tensor.out", [X, 0.1, 0, -129, 127, 1], [Q], InvalidArgument, "lie in order between -128 and 127"),
    ("quantize_per_tensor.out", [X, 0.1, 0, 5, 4, 1], [Q], InvalidArgument, "must lie in order between"),
    ("quantize_per_tensor.out", [X, 0.1, 0, 0, 255, 0], [Q], InvalidType, "argument 'out' is int8, but"),
    ("quantize_per_tensor.out", [X, 0.1, 0, 0, 9, 4], [Q.astype(np.int64)], InvalidType, "quantized tensors are uint8"),
    ("quantize_per_tensor.Tensor_out", [X, ONE, ZERO, 0, 9, 1], [Q], InvalidArgument, "'scale' must have one element"),
    ("dequantize_per_tensor.out", [Q, 0.1, 0, 0, 255, 0, None], [X], InvalidType, "argument 'input' is int8"),
    ("dequantize_per_tensor.out", [Q, 0.1, 0, 0, 9, 1, 7], [X], InvalidType, "is asked for as float64"),
    ("quantize_per_channel.out", [X, ONE, ZERO, 2, 0, 9, 1], [Q], InvalidArgument, "argument 'axis' is 2"),
    ("quantize_per_channel.out", [X, ONE, ZERO, 1, 0, 9, 1], [Q], InvalidArgument, "'scales' must have shape (4,)"),
    ("quantize_per_token.out", [X, ONE[:1], ZERO, 0, 9, 1], [Q], InvalidArgument, "argument 'scales' of shape (1,)"),
    ("quantize_per_channel_group.out", [X, ONE, ZERO, 0, 9, 1, 3], [Q], InvalidArgument, "'group_size' is 3"),
    ("quantize_per_channel_group.out", [X, ONE, ZERO, 0, 9, 1, 2], [Q], InvalidArgument,
     "argument 'scales' has 2 elements, but 'input' has 4 groups"),
    ("choose_qparams.Tensor_out", [X[:0], 0, 9, 1e-5, 1], [ONE, ZERO], InvalidArgument, "is empty: it has no range"),
    ("choose_qparams.Tensor_out", [X, 1, 9, 1e-5, 1], [ONE, ZERO], InvalidArgument, "must enclose 0"),
    ("choose_qparams.Tensor_out", [X, 0, 9, 1e-5, 1], [X, ZERO], InvalidType, "'scale_out' must be float64"),
    ("choose_qparams_per_token_asymmetric.out", [X[:, :0], 1], [ONE, ZERO], InvalidArgument, "has empty rows"),
    ("embedding_4bit.out", [Q, ONE, None, -8, 7, ZERO], [X], InvalidType, "'weight' must hold bytes, but is int8"),
    ("embedding_4bit.out", [Q.view(np.uint8), ONE, None, 0, 15, ZERO], [X], InvalidArgument,
     "arguments 'weight_quant_min' and 'weight_quant_max' must be -8 and 7"),
    ("embedding_byte.out", [Q, ONE[:1], None, -128, 127, ZERO], [X], InvalidArgument, "argument 'weight_scales'"),
    ("embedding_byte.out", [Q, ONE, None, -128, 127, ZERO + 2], [X], InvalidArgument, "argument 'indices' holds 2"),
    ("embedding_byte.out", [Q, np.ones((2, 3)), None, -128, 127, ZERO], [X], InvalidArgument, "3 groups for 4 columns"),
    ("add.out", [Q, 0.1, 0, -128, 127, Q.view(np.uint8), 0.1, 0, 0, 255, 0.1, 0, -128, 127], [Q], InvalidType,
     "argument 'b' is uint8, but argument 'a' is int8"),
    ("add.out", [Q, 0.1, 0, -128, 127, Q, 0.1, 0, -128, 127, 0.1, 0, 0, 255], [Q.view(np.uint8)], InvalidType,
     "argument 'out' is uint8, but argument 'a' is int8"),
    ("mixed_mm.out", [X, Q, ONE, None], [X], InvalidArgument, "cannot be multiplied"),
    ("mixed_linear.out", [X, Q.view(np.uint8), ONE, None, None], [X], InvalidType, "'weight' must be int8"),
    ("mixed_linear.out", [X, Q, ONE, None, 5], [X], InvalidType, "argument 'dtype' says float16"),
    ("mixed_linear.out", [X, Q, ONE, ONE[:1], None], [X], InvalidArgument, "'weight_zero_points' must have shape (2,)"),
]
# fmt: on


@pytest.mark.parametrize(("op", "inputs", "outs", "fault", "message"), REFUSED)
def test_refused(
    oracle: Oracle, op: str, inputs: list[Any], outs: list[Array], fault: type[RuntimeFault], message: str
) -> None:
    oracle.assert_refused(f"quantized_decomposed::{op}", inputs, [out.copy() for out in outs], fault, message)
