"""Weights -> codes and scales, four-bit codes two to a byte, and back, in operators that every runtime has.

`docs/quantization.md`, "How 4-bit weights are stored", has the layout and why it is so.
"""

from __future__ import annotations

from typing import Final

import torch

__all__ = ["bags_of_rows", "dequantized_weight", "gathered_rows", "pack", "quantize_rows", "unpack"]

ZERO_CODE: Final = 8
"""The 4-bit code of 0.0 where there are no zero points."""

_CLIPS: Final = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
"""Shares of the largest weight of a group that are tried as its limit: with 16 codes, cutting an outlier often pays."""


_BLOCK: Final = 1 << 18
"""Weights that are rounded together: a megabyte, which stays in a core's cache. Of a matrix of 136 million the results
of each step as a whole are new memory from the system every time, which takes ten times as long."""


def quantize_rows(rows: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes of `rows` `[r, c]`, int8 -127 to 127 or uint8 0 to 15 (zero is 8), and a float32 scale for each row.

    Of four bits, the scale with the least square error among a few.
    """
    blocks = rows.detach().split(max(1, _BLOCK // rows.shape[1]))
    codes, scales = zip(*(_quantized(block.float(), bits) for block in blocks), strict=True)
    return torch.cat(codes), torch.cat(scales)


def _quantized(rows: torch.Tensor, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    largest = rows.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny * 256)
    if bits == 8:
        scales = largest / 127
        return torch.round(rows * (1 / scales)).clamp(-127, 127).to(torch.int8), scales[:, 0]  # as torch: of tied ones
    best, error = largest / 7, torch.full_like(largest, torch.inf)
    for clip in _CLIPS:
        scales = largest * (clip / 7)
        errors = (_codes(rows, scales) * scales - rows).square().sum(1, keepdim=True)
        best, error = torch.where(errors < error, scales, best), torch.minimum(errors, error)
    return (_codes(rows, best) + ZERO_CODE).to(torch.uint8), best[:, 0]


def _codes(rows: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    return torch.round(rows / scales).clamp(-8, 7)


def pack(codes: torch.Tensor) -> torch.Tensor:
    """uint8 `[…, k]` of 0 to 15 -> uint8 `[…, k/2]`: columns 2i in the low halves, 2i + 1 in the high ones."""
    return codes[..., ::2] | (codes[..., 1::2] << 4)


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """uint8 `[…, k/2]` -> uint8 `[…, k/2, 2]` of 0 to 15."""
    low = torch.bitwise_and(packed, 15)
    high = torch.div(packed, 16, rounding_mode="floor")
    return torch.stack([low, high], -1)


def dequantized_weight(
    stored: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    shape: list[int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """A weight of `shape` from what `quantize_rows` made of its groups, int8 or packed (uint8, two to a byte).

    There is a scale for each group: of a whole row, or of equal parts of it. `zero_points` are codes, a byte each.
    """
    dequantize = torch.ops.quantized_decomposed.dequantize_per_channel.default
    if stored.dtype == torch.int8:
        grouped = stored.numel() // scales.numel() != stored[0].numel()
        groups = stored.view(scales.numel(), -1) if grouped else stored
        zeros = None if zero_points is None else zero_points.to(torch.int64)
        values: torch.Tensor = dequantize(groups, scales, zeros, 0, -128, 127, torch.int8, out_dtype=dtype)
        return values.view(shape) if grouped else values
    codes = unpack(stored).view(scales.numel(), -1)
    if zero_points is None:
        zeros = torch.full([scales.numel()], ZERO_CODE, dtype=torch.int64)
    else:
        zeros = zero_points.to(torch.int64)
    weight: torch.Tensor = dequantize(codes, scales, zeros, 0, 0, 15, torch.uint8, out_dtype=dtype)
    return weight.view(shape)


def gathered_rows(
    indices: torch.Tensor,
    stored: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Rows of an embedding, which are taken out before they are dequantized: a table is large, and little of it read.

    As `dequantized_weight`, but `scales` and `zero_points` are `[rows, groups]`, or there is one scale, `[1, 1]`.
    """
    rows = torch.nn.functional.embedding(indices, stored)
    codes = rows if stored.dtype == torch.int8 else unpack(rows).flatten(-2)
    width = codes.shape[-1]
    if scales.numel() == 1:
        return (codes.to(scales.dtype) * scales.reshape(())).to(dtype)
    groups = codes.to(scales.dtype).unflatten(-1, (scales.shape[1], width // scales.shape[1]))
    if zero_points is not None:
        groups = groups - torch.nn.functional.embedding(indices, zero_points).to(scales.dtype).unsqueeze(-1)
    elif stored.dtype == torch.uint8:
        groups = groups - ZERO_CODE
    of_rows = torch.nn.functional.embedding(indices, scales).unsqueeze(-1)
    values: torch.Tensor = (groups * of_rows).flatten(-2).to(dtype)
    return values


def bags_of_rows(
    indices: torch.Tensor,
    stored: torch.Tensor,
    scales: torch.Tensor,
    zero_points: torch.Tensor | None,
    dtype: torch.dtype,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[torch.Tensor, ...]:
    """`embedding_bag` of such a table: of the rows that the indices name, one after the other."""
    rows = gathered_rows(indices, stored, scales, zero_points, dtype)
    places = torch.arange(indices.shape[0], dtype=indices.dtype)
    if padding_idx is not None:  # a row in front stands for those that do not count
        padded = indices == padding_idx % stored.shape[0]
        rows, places = torch.cat([torch.zeros_like(rows[:1]), rows]), torch.where(padded, 0, places + 1)
        padding_idx = 0
    bags: tuple[torch.Tensor, ...] = torch.ops.aten.embedding_bag.padding_idx(
        rows, places, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx
    )
    return bags
