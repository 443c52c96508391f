"""Weights of 8 or 4 bits -> operands of MatMulNBits: codes, and scales and zero points of groups of codes.

A weight of 4 bits arrives as two codes a byte, the lower half first, unpacked by calls that are matched here and then
left out. One of 8 bits is stored as two of 4, `w = 16 * high + low`, whose products are added: their kernel computes in
float32 as fast as a product of floats, which the one for 8 bits does only if it may round the input.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import Quantizations
from delegraph_cpu.aot.graph import CpuGraph
from delegraph_cpu.aot.quantized.weights import KnownWeight, constant_weight, is_settled, symmetric_weight
from delegraph_onnx.integers import shifted

__all__ = ["PackedPart", "higher", "packed_parts", "pairs"]

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class PackedPart:
    """An operand (rows, inner) of MatMulNBits: unsigned codes, a scale and a zero point for each group of them."""

    bits: int
    shape: tuple[int, int, int]
    """Rows, groups of a row, codes of a group"""
    codes: ir.Value
    """uint8 (rows, groups, bytes of a group)"""
    scales: ir.Value
    """float32 (rows * groups,)"""
    zero_points: ir.Value | None = None
    """Two to a byte; None: the middle of the range of the bits."""
    filled_from: int = 0
    """The size of each group before it was padded with zeros; 0: it was not."""

    def some(self, g: CpuGraph, start: int, count: int) -> PackedPart:
        """`count` rows from `start` on."""
        groups = self.shape[1]
        first, end = start * groups, (start + count) * groups
        zero_points = self.zero_points and _sliced(g, self.zero_points, start, start + count)
        codes, scales = _sliced(g, self.codes, start, start + count), _sliced(g, self.scales, first, end)
        return replace(self, shape=(count, *self.shape[1:]), codes=codes, scales=scales, zero_points=zero_points)


def packed_parts(g: CpuGraph, weight: Node, rounded: bool) -> list[PackedPart]:
    """The parts whose sum is `weight`; none if it has another form."""
    packed = _packed_weight(g, weight)
    return _parts_of_bytes(g, weight, rounded) if packed is None else [packed]


def _sliced(g: CpuGraph, value: ir.Value, start: int, end: int) -> ir.Value:
    """Rows of `value`; a constant gets a constant of its own."""
    if value.const_value is not None:
        return g.weight(str(value.name), value.const_value.numpy()[start:end])
    return g.op("Slice", value, g.ints([start]), g.ints([end]), g.ints([0]))


def pairs(codes: NDArray[np.integer[Any]]) -> Bytes:
    """Two codes of 4 bits a byte, the lower half first; an odd last code has a byte of its own."""
    even = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, codes.shape[-1] % 2)]).astype(np.uint8)
    return np.asarray(even[..., ::2] | even[..., 1::2] << 4, np.uint8)


# ---- 8 bits -------------------------------------------------------------------------------------------------------


def _parts_of_bytes(g: CpuGraph, node: Node, rounded: bool) -> list[PackedPart]:
    """An int8 weight with a scale for each row, or for all rows. If the input stays exact, two parts that add up to it.
    If it is rounded, groups are taken too: otherwise dequantizing in each run takes no longer."""
    grouped = _bytes_by_row(g, node) or (_bytes_in_groups(g, node) if rounded else None)
    if grouped is None:
        return _parts_of_external_bytes(g, node)
    codes, scales = grouped
    rows, groups, group = codes.shape
    shape = (rows, groups, group)
    if g.int8_inputs:
        return [PackedPart(8, shape, g.weight(f"{node.name}.codes", codes), _scales(g, node, scales))]
    # code - 128 = 16 * ((code >> 4) - 8) + (code & 15): the high half has the default zero point 8, the low half 0
    high, low = (g.weight(f"{node.name}.codes", pairs(half)) for half in (codes >> 4, codes & 15))
    zero = _zero_points(g, node, np.zeros(scales.shape, np.int64))
    return [
        PackedPart(4, shape, high, _scales(g, node, scales * 16)),
        PackedPart(4, shape, low, _scales(g, node, scales), zero),
    ]


def _scales(g: CpuGraph, node: Node, scales: NDArray[np.float32]) -> ir.Value:
    return g.weight(f"{node.name}.scales", scales.reshape(-1))


def _zero_points(g: CpuGraph, node: Node, zero_points: NDArray[np.integer[Any]]) -> ir.Value:
    return g.weight(f"{node.name}.zero_points", pairs(zero_points))


def _parts_of_external_bytes(g: CpuGraph, node: Node) -> list[PackedPart]:
    """As `_parts_of_bytes`, for a weight that is known only at load: by row, in groups that need no padding."""
    weight = constant_weight(g, node, 0)
    if weight is None or isinstance(weight, KnownWeight) or len(weight.shape) != 2 or weight.zero_point.any():
        return []
    rows, inner = weight.shape
    group = next((size for size in _GROUPS if inner % size == 0), None)
    if group is None:
        return []
    shape = (rows, inner // group, group)
    codes = g.op("Reshape", shifted(g, weight.inputs[0], torch.uint8), g.ints(shape))
    scales = g.op("Expand", g.op("Reshape", weight.inputs[1], g.ints([-1, 1])), g.ints(shape[:2]))
    fine = g.op("Reshape", scales, g.ints([-1]))
    if g.int8_inputs:
        return [PackedPart(8, shape, codes, fine)]
    first, second = _pairs_of(g, codes)
    # bits abcdefgh (first), ijklmnop (second)  ->  ijklabcd (high), mnopefgh (low)
    high = g.op("BitwiseOr", _shifted(g, first, "RIGHT"), g.op("BitwiseAnd", second, _byte(g, 240)))
    low = g.op("BitwiseOr", g.op("BitwiseAnd", first, _byte(g, 15)), _shifted(g, second, "LEFT"))
    coarse = g.op("Mul", fine, g.constant(np.array(16, np.float32)))
    zero = _zero_points(g, node, np.zeros(shape[:2], np.int64))
    return [PackedPart(4, shape, high, coarse), PackedPart(4, shape, low, fine, zero)]


def _pairs_of(g: CpuGraph, codes: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Every second code along the last dim, from the first and from the second on."""
    ends = (g.ints([2**31 - 1]), g.ints([-1]), g.ints([2]))
    return g.op("Slice", codes, g.ints([0]), *ends), g.op("Slice", codes, g.ints([1]), *ends)


def _shifted(g: CpuGraph, codes: ir.Value, direction: str) -> ir.Value:
    return g.op("BitShift", codes, _byte(g, 4), direction=direction)


def _byte(g: CpuGraph, number: int) -> ir.Value:
    return g.constant(np.array(number, np.uint8))


def _bytes_by_row(g: CpuGraph, node: Node) -> tuple[Bytes, NDArray[np.float32]] | None:
    """Codes, 128 higher, (rows, groups, elements of a group) and their scales, (rows, groups)."""
    weight = symmetric_weight(g, node, 0)
    if weight is None or weight.content.ndim != 2:
        return None
    rows, inner = weight.content.shape
    group = _fewest_bytes(inner, 8)
    groups = -(-inner // group)
    # 128 stands for 0, so that the padding adds nothing
    codes = np.full((rows, groups * group), 128, np.uint8)
    codes[:, :inner] = higher(weight.content)
    return codes.reshape(rows, groups, group), np.repeat(weight.scale.reshape(-1, 1), groups, 1)


def _bytes_in_groups(g: CpuGraph, node: Node) -> tuple[Bytes, NDArray[np.float32]] | None:
    """As `_bytes_by_row`, where the weight has groups that MatMulNBits takes."""
    weight = Quantizations(g.constants).weight(node)
    if weight is None or weight.stored.dtype != np.int8 or not weight.quantization.is_symmetric:
        return None
    of = weight.quantization
    if of.group_size is None or of.group_size not in _GROUPS:
        return None
    codes = higher(weight.integers).reshape(weight.shape[0], -1, of.group_size)
    return codes, of.scale.astype(np.float32)


def higher(content: NDArray[np.int8]) -> Bytes:
    """The content 128 higher, unsigned."""
    return np.asarray(content.view(np.uint8) ^ np.uint8(128), np.uint8)


_GROUPS: Final = (256, 128, 64, 32, 16)
"""The group sizes of MatMulNBits, from those with the fewest scales on."""

_SCALES: Final = 8
"""The bytes of a group's two scales: too large a group needs padding, too small a group more scales."""


def _fewest_bytes(elements: int, bits: int) -> int:
    """The group size in which so many elements take the least memory."""
    return min(_GROUPS, key=lambda size: -(-elements // size) * (size * bits // 8 + _SCALES))


# ---- 4 bits -------------------------------------------------------------------------------------------------------


def _packed_weight(g: CpuGraph, node: Node) -> PackedPart | None:
    """A weight that is stored packed, by rows or in groups, padded where the kernel's groups do not divide them."""
    weight = Quantizations(g.constants).weight(node)
    if weight is None:
        return _external_packed_weight(g, node)
    if weight.packed is None:
        return None
    rows, inner = weight.shape
    of = weight.quantization
    scales, zeros = of.scale.reshape(rows, -1).astype(np.float32), of.zero_point.reshape(rows, -1)
    elements = inner // scales.shape[1]
    group = _group_of(elements) or _fewest_bytes(elements, 4)
    filled = -(-elements // group) * group
    codes = weight.packed.reshape(rows, -1)
    # zeros behind each group, up to the kernel's group:   [c c c] [c c c]  ->  [c c c 0] [c c c 0]
    if filled != elements:
        unpacked = np.stack([codes & 15, codes >> 4], -1).reshape(rows, -1)[:, :inner].reshape(rows, -1, elements)
        codes = pairs(np.pad(unpacked, [(0, 0), (0, 0), (0, filled - elements)]))
    times = filled // group  # groups of the kernel in one of the weight
    shape = (rows, scales.shape[1] * times, group)
    return PackedPart(
        4,
        shape,
        g.weight(f"{node.name}.codes", codes.reshape(rows, -1, group // 2)),
        _scales(g, node, scales.repeat(times, 1)),
        None if (zeros == _MIDDLE).all() else _zero_points(g, node, zeros.repeat(times, 1)),
        elements if filled != elements and scales.shape[1] > 1 else 0,  # the kernel skips a padding at the end of a row
    )


def _external_packed_weight(g: CpuGraph, node: Node) -> PackedPart | None:
    """As `_packed_weight`, for a weight that is known only at load, if its groups need no padding."""
    weight = Quantizations(g.constants).stored(node)
    if weight is None or not weight.is_packed or weight.node not in g.external or len(weight.shape) != 2:
        return None
    call, (rows, inner) = weight.call, weight.shape
    zeros = np.zeros(1) if call.zero_point is None else g.constants.array(call.zero_point)
    if zeros is None or not isinstance(call.scale, Node) or not is_settled(g, replace(call, source=weight.node)):
        return None
    elements = inner * rows // call.scale.meta["val"].numel()
    group = _group_of(elements) if rows * inner % elements == 0 else None
    if group is None or inner % elements:
        return None
    groups, times = inner // group, elements // group
    real = g.op("Reshape", g.tensor(call.scale, torch.float32), g.ints([-1, 1]))
    scales = g.op("Reshape", g.op("Expand", real, g.ints([rows * groups // times, times])), g.ints([-1]))
    of_groups = np.broadcast_to(zeros.reshape(-1, 1), (rows * groups // times, times)).reshape(rows, groups)
    return PackedPart(
        4,
        (rows, groups, group),
        g.op("Reshape", g.value(weight.node), g.ints([rows, groups, group // 2])),
        scales,
        None if (of_groups == _MIDDLE).all() else _zero_points(g, node, of_groups.astype(np.int64)),
    )


def _group_of(elements: int) -> int | None:
    """The largest of the kernel's groups that divides the weight's."""
    return next((size for size in _GROUPS if elements % size == 0), None)


_MIDDLE: Final = 8
"""The default zero point of MatMulNBits for codes of 4 bits."""
