"""The operators of ExecuTorch's quantized library: integers with scales and zero points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from tests.operators.case import Case, call, indices, renamed_call, stand_in, tensor
from torch.ao.quantization.fx import _decomposed  # noqa: F401  defines quantized_decomposed

ops = torch.ops.quantized_decomposed
S = "quantized_decomposed::"


def per_tensor() -> Iterator[Case]:
    ranges = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "int32": (-(2**31), 2**31 - 1)}
    for dtype, (low, high) in ranges.items():
        kind = getattr(torch, dtype)
        x, q = tensor(3, 5), tensor(3, 5, dtype=dtype, low=-100, high=100)
        zero = 3
        fixed = (0.05, zero, low, high, kind)
        by_tensor = (torch.tensor(0.05, dtype=torch.float64), torch.tensor(zero), low, high, kind)
        yield call(f"{S}quantize_per_tensor.out", dtype, ops.quantize_per_tensor.default, x, *fixed)
        yield call(f"{S}dequantize_per_tensor.out", dtype, ops.dequantize_per_tensor.default, q, *fixed)
        yield call(f"{S}quantize_per_tensor.Tensor_out", dtype, ops.quantize_per_tensor.tensor, x, *by_tensor)
        yield call(f"{S}dequantize_per_tensor.Tensor_out", dtype, ops.dequantize_per_tensor.tensor, q, *by_tensor)
    narrow = (0.01, 0, -8, 7, torch.int8)
    yield call(f"{S}quantize_per_tensor.out", "narrow range", ops.quantize_per_tensor.default, tensor(3, 5), *narrow)
    halves = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5]), 1.0, 0, -128, 127, torch.int8
    yield call(f"{S}quantize_per_tensor.out", "halves to even", ops.quantize_per_tensor.default, *halves)
    yield call(
        f"{S}quantize_per_tensor.out",
        "empty",
        ops.quantize_per_tensor.default,
        tensor(0),
        0.1,
        0,
        -128,
        127,
        torch.int8,
    )
    name = f"{S}choose_qparams.Tensor_out"
    for dtype, (low, high) in {"int8": (-128, 127), "uint8": (0, 255)}.items():
        kind = getattr(torch, dtype)
        yield call(name, dtype, ops.choose_qparams.tensor, tensor(3, 5), low, high, 1e-5, kind)
        yield call(name, f"{dtype} positive", ops.choose_qparams.tensor, tensor(3, 5, low=1), low, high, 1e-5, kind)


def per_channel_and_token() -> Iterator[Case]:
    for dtype, low, high in (("int8", -128, 127), ("uint8", 0, 255)):
        kind, x, q = getattr(torch, dtype), tensor(3, 5), tensor(3, 5, dtype=dtype, low=-100, high=100)
        for axis, size in ((0, 3), (1, 5)):
            scales = tensor(size, low=0.02, high=0.1)
            zeros = tensor(size, dtype="int64", low=0, high=5)
            variant = f"{dtype} axis {axis}"
            yield call(
                f"{S}quantize_per_channel.out",
                variant,
                ops.quantize_per_channel.default,
                x,
                scales,
                zeros,
                axis,
                low,
                high,
                kind,
            )
            yield call(
                f"{S}dequantize_per_channel.out",
                variant,
                ops.dequantize_per_channel.default,
                q,
                scales,
                zeros,
                axis,
                low,
                high,
                kind,
            )
            double = scales.double(), zeros, axis, low, high, kind
            yield call(
                f"{S}quantize_per_channel.out",
                f"{variant} float64 scales",
                ops.quantize_per_channel.default,
                x,
                *double,
            )
    yield call(
        f"{S}dequantize_per_channel.out", "no zero points", ops.dequantize_per_channel.default,
        tensor(3, 5, dtype="int8"), tensor(3, low=0.1), None, 0, -128, 127, torch.int8,
    )  # fmt: skip
    scales, zeros = tensor(3, 1, low=0.02, high=0.1), tensor(3, 1, low=-5, high=5, dtype="int64")
    fixed = (-128, 127, torch.int8)
    yield call(
        f"{S}quantize_per_token.out", "int8", ops.quantize_per_token.default, tensor(3, 5), scales, zeros, *fixed
    )
    yield call(
        f"{S}quantize_per_token.out", "int8 float64 scales",
        ops.quantize_per_token.default, tensor(3, 5), scales.double(), zeros, *fixed,
    )  # fmt: skip
    yield call(
        f"{S}dequantize_per_token.out", "int8", ops.dequantize_per_token.default,
        tensor(3, 5, dtype="int8"), scales, zeros, *fixed, torch.float32,
    )  # fmt: skip
    whole = ops._choose_qparams_per_token_asymmetric_impl.default
    for variant, shape in {"matrix": (3, 5), "3-d": (2, 3, 5)}.items():
        plain = call(f"{S}choose_qparams_per_token_asymmetric.out", variant, whole, tensor(*shape), torch.int8)
        yield Case(
            plain.operator, variant, plain.function, plain.calls, plain.keep,
            renamed={f"{S}_choose_qparams_per_token_asymmetric_impl.out": plain.operator},
        )  # fmt: skip


# ---- what torch has no operator for: the formulae in float32 ----------------------------------------


def _add(
    a: torch.Tensor, a_scale: float, a_zero: int, a_min: int, a_max: int,
    b: torch.Tensor, b_scale: float, b_zero: int, b_min: int, b_max: int,
    out_scale: float, out_zero: int, out_min: int, out_max: int,
) -> torch.Tensor:  # fmt: skip
    total = (a.float() - a_zero) * a_scale + (b.float() - b_zero) * b_scale
    return ((total / out_scale).round() + out_zero).clamp(out_min, out_max).to(a.dtype)


def _unpacked(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """4 bits: the high half first; 2 bits: the lowest two first. Both are stored with half of the range added."""
    shifts = {8: [], 4: [4, 0], 2: [0, 2, 4, 6]}[bits]
    if not shifts:
        return packed.float()
    parts = [((packed >> shift) & (2**bits - 1)).float() - 2 ** (bits - 1) for shift in shifts]
    return torch.stack(parts, -1).flatten(-2)


def _weights(weight: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None) -> torch.Tensor:
    """Each row, or each group of a row, has a scale and a zero point."""
    groups = weight.reshape(*weight.shape[:-1], scales.shape[1] if scales.dim() == 2 else 1, -1)
    shifted = groups if zeros is None else groups - zeros.float().reshape(len(weight), -1, 1)
    return (shifted * scales.float().reshape(len(weight), -1, 1)).reshape(weight.shape)


def _embedding(bits: int) -> Any:
    def body(
        weight: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None, low: int, high: int,
        rows: torch.Tensor, dtype: torch.dtype | None = None,
    ) -> torch.Tensor:  # fmt: skip
        return _weights(_unpacked(weight, bits), scales, zeros)[rows].to(dtype or scales.dtype)

    return body


def _mixed_mm(x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None) -> torch.Tensor:
    return (x.float() @ _weights(weight.float(), scales, zeros)).to(x.dtype)


def _mixed_linear(
    x: torch.Tensor, weight: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor | None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:  # fmt: skip
    return (x.float() @ _weights(weight.float(), scales, zeros).T).to(dtype or x.dtype)


_WEIGHT = "Tensor weight, Tensor weight_scales, Tensor? weight_zero_points"


def packed_weights() -> Iterator[Case]:
    numbers = "float {0}_scale, int {0}_zero_point, int {0}_quant_min, int {0}_quant_max"
    a, b, out = (numbers.format(x) for x in ("a", "b", "out"))
    add = stand_in(f"q_add(Tensor a, {a}, Tensor b, {b}, {out}) -> Tensor", _add)
    for dtype, low, high in (("int8", -128, 127), ("uint8", 0, 255)):
        x, y = (tensor(3, 5, dtype=dtype, low=-100, high=100, seed=i) for i in (0, 1))
        yield renamed_call(f"{S}add.out", dtype, add, x, 0.05, 1, low, high, y, 0.03, 2, low, high, 0.1, 3, low, high)
    rows = indices(2, 3, below=4)
    for bits, name in ((8, "embedding_byte"), (4, "embedding_4bit"), (2, "embedding_2bit")):
        fixed = f"{_WEIGHT}, int weight_quant_min, int weight_quant_max, Tensor indices"
        plain = stand_in(f"q_{name}({fixed}) -> Tensor", _embedding(bits))
        # the dtype is keyword-only in some places and positional in others; a program has one order of arguments
        typed = stand_in(f"q_{name}_dtype({fixed}, *, ScalarType? dtype=None) -> Tensor", _embedding(bits))
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        stored = (
            tensor(4, 8, dtype="int8", low=-100, high=100)
            if bits == 8
            else tensor(4, 8, dtype="uint8", low=0, high=255)
        )
        scales, grouped = tensor(4, low=0.02, high=0.1), tensor(4, 2, low=0.02, high=0.1)
        zeros = tensor(4, low=-2, high=2).round()
        yield renamed_call(f"{S}{name}.out", "scale by row", plain, stored, scales, None, low, high, rows)
        yield renamed_call(f"{S}{name}.out", "zero points", plain, stored, scales, zeros, low, high, rows)
        yield renamed_call(f"{S}{name}.out", "groups", plain, stored, grouped, None, low, high, rows)
        yield renamed_call(
            f"{S}{name}.dtype_out", "float16", typed, stored, scales, None, low, high, rows, dtype=torch.float16
        )
        yield renamed_call(f"{S}{name}.dtype_out", "None", typed, stored, scales, zeros, low, high, rows)
    product = stand_in(f"q_mixed_mm(Tensor input, {_WEIGHT}) -> Tensor", _mixed_mm)
    linear = stand_in(f"q_mixed_linear(Tensor input, {_WEIGHT}, ScalarType? dtype=None) -> Tensor", _mixed_linear)
    weight, across = tensor(4, 6, dtype="int8", low=-100, high=100), tensor(6, 4, dtype="int8", low=-100, high=100)
    for dtype in ("float32", "float16"):
        x, scale = tensor(3, 4, dtype=dtype), tensor(4, dtype=dtype, low=0.02, high=0.1)
        yield renamed_call(f"{S}mixed_mm.out", dtype, product, x, weight, scale, None)
        scale = tensor(6, dtype=dtype, low=0.02, high=0.1)
        yield renamed_call(f"{S}mixed_linear.out", dtype, linear, x, across, scale, None)
    grouped = tensor(6, 2, low=0.02, high=0.1)
    yield renamed_call(f"{S}mixed_linear.out", "groups", linear, tensor(3, 4), across, grouped, None)


def quantized_cases() -> Iterator[Case]:
    yield from per_tensor()
    yield from per_channel_and_token()
    yield from packed_weights()
