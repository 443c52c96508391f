"""Linear layers of floats whose weights alone are quantized, to 8 or 4 bits: MatMulNBits, which reads them packed.

A weight of 4 bits arrives as two codes a byte, the lower half first, unpacked by calls that are matched here and then
left out. One of 8 bits is stored as two of 4, `w = 16 * high + low`, whose products are added: their kernel computes in
float32 as fast as a product of floats, which the one for 8 bits does only if it may round the input. Where many rows
are multiplied, it is dequantized in each run, which then costs less than a second product.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import Quantizations
from delegraph_cpu.aot.converters.table import TABLE, OnnxConverter, aten
from delegraph_cpu.aot.graph_builder import GraphBuilder, TensorLike, dtype_of, rank_of, shape_of
from delegraph_cpu.aot.quantized.by_row import product_by_row, product_by_token, unpacked_product_by_row
from delegraph_cpu.aot.quantized.values import CONTRIB
from delegraph_cpu.aot.quantized.weights import symmetric_weight

__all__ = ["float_linear"]

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Codes:
    """A weight (rows, inner) as MatMulNBits has it: unsigned codes, a scale and a zero point for each group of them."""

    bits: int
    codes: Bytes
    """(rows, groups, bytes of a group)"""
    scales: NDArray[np.float32]
    """(rows, groups)"""
    zero_points: NDArray[np.integer[Any]] | None = None
    """(rows, groups); None: the middle of what the bits hold"""
    filled_from: int = 0
    """Of how many elements each group was before it was filled up, if it was"""

    @property
    def group(self) -> int:
        return int(self.codes.shape[2]) * 8 // self.bits


def float_linear(g: GraphBuilder, input: Node, weight: Node, bias: Node | None) -> ir.Value | None:
    """`input @ weight.T + bias` in float32, if the weight is a constant of a form known here."""
    if dtype_of(input) != torch.float32:
        return None
    product = product_by_token(g, input, weight) or _of_many_rows(g, input, weight) or _of_codes(g, input, weight)
    return product if product is None or bias is None else g.op("Add", product, g.value(bias))


def _of_many_rows(g: GraphBuilder, input: Node, weight: Node) -> ir.Value | None:
    """A product of integers or of floats, if that is faster than one of codes."""
    fewest, most = _rows(g, input)
    if fewest >= MANY_ROWS:
        return (product_by_row if g.int8_inputs else _product_of_floats)(g, input, weight)
    return unpacked_product_by_row(g, input, weight) if fewest > 1 and most >= MANY_ROWS else None


def _of_codes(g: GraphBuilder, input: Node, weight: Node) -> ir.Value | None:
    # The kernel for 4 bits dequantizes for many rows, and only if it rounds no input is that a product of floats.
    rounded = g.int8_inputs and _rows(g, input)[0] < MANY_ROWS
    packed = _packed_weight(g, weight)
    parts = _parts_of_bytes(g, weight, rounded) if packed is None else [packed]
    if not parts:
        return None
    x, inner = g.value(input), int(shape_of(weight)[1])
    if packed is not None and packed.filled_from:
        x, inner = _filled(g, x, rank_of(input), packed), packed.codes.shape[1] * packed.group
    return g.total([_matmul(g, weight.name, x, part, inner, rounded) for part in parts])


def _filled(g: GraphBuilder, x: ir.Value, rank: int, weight: _Codes) -> ir.Value:
    """`x` with zeros behind the elements of each group, as the weight has been filled up."""
    rows, groups = [0] * (rank - 1), weight.codes.shape[1]
    parts = g.op("Reshape", x, g.ints([*rows, groups, weight.filled_from]))  # 0: the size as it is
    ends = [*[0] * rank, weight.group - weight.filled_from]
    filled = g.op("Pad", parts, g.ints([*[0] * (rank + 1), *ends]))
    return g.op("Reshape", filled, g.ints([*rows, groups * weight.group]))


def _matmul(g: GraphBuilder, name: str, x: ir.Value, weight: _Codes, inner: int, rounded: bool) -> ir.Value:
    zero_points = None
    if weight.zero_points is not None:
        zero_points = g.weight(f"{name}.zero_points", _pairs(weight.zero_points))
    return g.op(
        "MatMulNBits",
        x,
        g.weight(f"{name}.codes", weight.codes),
        g.weight(f"{name}.scales", weight.scales.reshape(-1)),
        zero_points,
        domain=CONTRIB,
        K=inner,
        N=weight.codes.shape[0],
        bits=weight.bits,
        block_size=weight.group,
        accuracy_level=_ROUNDED if rounded else _FLOAT32,
    )


def _product_of_floats(g: GraphBuilder, input: Node, node: Node) -> ir.Value | None:
    """Gemm on an int8 weight that is dequantized as it runs: as a MatMul onnxruntime would round the input for it."""
    weight = symmetric_weight(g, node, 0)
    if weight is None or weight.content.ndim != 2:
        return None
    rows, inner = weight.content.shape
    floats = g.op("DequantizeLinear", *weight.inputs, axis=0)
    product = g.op("Gemm", g.reshape(g.value(input), (-1, inner)), floats, transB=1)
    return g.reshape(product, (*shape_of(input)[:-1], rows))


def _rows(g: GraphBuilder, input: Node) -> tuple[int, float]:
    """How many rows it has, at least and at most."""
    *outer, _ = shape_of(input)
    bounds = [(size, size) if isinstance(size, int) else g.bounds(size) for size in outer]
    return prod(least for least, _ in bounds), prod(most for _, most in bounds)


MANY_ROWS: Final = 16
"""From here on (onnxruntime 1.31, one thread) two products of 4 bits take longer than one of floats: 384 x 1536 at 16
rows 1122 us against 992, at 128 rows 2983 against 2019 (in float 1446). So does one of 4 bits with rounded inputs:
192 x 768 at 16 rows 165 us against 141, at 197 rows 2320 against 993."""

_FLOAT32: Final = 1
_ROUNDED: Final = 4
"""`accuracy_level`s of MatMulNBits: computes in float32, or rounds blocks of the input to int8."""


def _pairs(codes: NDArray[np.integer[Any]]) -> Bytes:
    """Two codes of 4 bits a byte, the lower half first; an odd last one is alone in its."""
    even = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, codes.shape[-1] % 2)]).astype(np.uint8)
    return np.asarray(even[..., ::2] | even[..., 1::2] << 4, np.uint8)


# ---- 8 bits -------------------------------------------------------------------------------------------------------


def _parts_of_bytes(g: GraphBuilder, node: Node, rounded: bool) -> list[_Codes]:
    """An int8 weight with scales by row, or for all of it; two parts that add up to it where the input stays exact.
    Where it is rounded, also one in groups: else to dequantize it in each run takes no longer."""
    found = _bytes_by_row(g, node) or (_bytes_in_groups(g, node) if rounded else None)
    if found is None:
        return []
    codes, scales = found
    rows, groups, _ = codes.shape
    if g.int8_inputs:
        return [_Codes(8, codes, scales)]
    high, low = (_pairs(half) for half in (codes >> 4, codes & 15))
    return [_Codes(4, high, scales * 16), _Codes(4, low, scales, np.zeros((rows, groups), np.int64))]


def _bytes_by_row(g: GraphBuilder, node: Node) -> tuple[Bytes, NDArray[np.float32]] | None:
    """Codes, 128 higher, (rows, groups, elements of a group) and their scales, (rows, groups)."""
    weight = symmetric_weight(g, node, 0)
    if weight is None or weight.content.ndim != 2:
        return None
    rows, inner = weight.content.shape
    group = _fewest_bytes(inner, 8)
    groups = -(-inner // group)
    codes = np.full((rows, groups * group), 128, np.uint8)
    codes[:, :inner] = _higher(weight.content)
    return codes.reshape(rows, groups, group), np.repeat(weight.scale.reshape(-1, 1), groups, 1)


def _bytes_in_groups(g: GraphBuilder, node: Node) -> tuple[Bytes, NDArray[np.float32]] | None:
    """As `_bytes_by_row`, where the weight has groups that MatMulNBits takes."""
    weight = Quantizations(g.constants).weight(node)
    if weight is None or weight.stored.dtype != np.int8 or not weight.quantization.is_symmetric:
        return None
    of = weight.quantization
    if of.group_size is None or of.group_size not in _GROUPS:
        return None
    codes = _higher(weight.integers).reshape(weight.shape[0], -1, of.group_size)
    return codes, of.scale.astype(np.float32)


def _higher(content: NDArray[np.int8]) -> Bytes:
    """128 higher, unsigned."""
    return np.asarray(content.view(np.uint8) ^ np.uint8(128), np.uint8)


_GROUPS: Final = (256, 128, 64, 32, 16)
"""What MatMulNBits takes, the fewest scales first."""

_SCALES: Final = 8
"""The bytes of a group's two scales: a group too large is filled up, one too small has more of them."""


def _fewest_bytes(elements: int, bits: int) -> int:
    """The size of groups in which as many elements take the least memory."""
    return min(_GROUPS, key=lambda size: -(-elements // size) * (size * bits // 8 + _SCALES))


# ---- 4 bits -------------------------------------------------------------------------------------------------------


def _packed_weight(g: GraphBuilder, node: Node) -> _Codes | None:
    """A weight that is stored packed, by rows or in groups; filled up where the kernel's groups don't divide them."""
    weight = Quantizations(g.constants).weight(node)
    if weight is None or weight.packed is None:
        return None
    rows, inner = weight.shape
    of = weight.quantization
    scales, zeros = of.scale.reshape(rows, -1).astype(np.float32), of.zero_point.reshape(rows, -1)
    given, middle = inner // scales.shape[1], (zeros == _MIDDLE).all()
    group = next((size for size in _GROUPS if given % size == 0), None) or _fewest_bytes(given, 4)
    filled = -(-given // group) * group
    codes = weight.packed.reshape(rows, -1)
    if filled != given:
        unpacked = np.stack([codes & 15, codes >> 4], -1).reshape(rows, -1)[:, :inner].reshape(rows, -1, given)
        codes = _pairs(np.pad(unpacked, [(0, 0), (0, 0), (0, filled - given)]))
    times = filled // group  # of the groups that the kernel takes, for one that was given
    return _Codes(
        4,
        codes.reshape(rows, -1, group // 2),
        scales.repeat(times, 1),
        None if middle else zeros.repeat(times, 1),
        given if filled != given and scales.shape[1] > 1 else 0,  # what is behind a row's end the kernel leaves out
    )


_MIDDLE: Final = 8
"""The zero point of codes of 4 bits that MatMulNBits takes for granted."""


# ---- codes for which there is no kernel: unpacked at run time ------------------------------------------------------


def _lower_half(g: GraphBuilder, node: Node, packed: Node, mask: int) -> ir.Value:
    return g.op("BitwiseAnd", g.value(packed), g.constant(np.array(mask, np.uint8)))


def _higher_half(g: GraphBuilder, node: Node, packed: Node, divisor: TensorLike, rounding_mode: str) -> ir.Value:
    wide = [g.cast(g.tensor(value, torch.uint8), torch.int32) for value in (packed, divisor)]
    return g.cast(g.op("Div", *wide), torch.uint8)


def _rounds_down(node: Node, packed: Node, divisor: object, rounding_mode: str | None) -> str | None:
    return None if rounding_mode == "floor" else f"division of bytes with rounding mode {rounding_mode}"


_BYTES: Final = frozenset({torch.uint8})
TABLE.of_bytes.add(aten("bitwise_and.Scalar"), OnnxConverter(_lower_half, _BYTES))
TABLE.of_bytes.add(aten("div.Tensor_mode"), OnnxConverter(_higher_half, _BYTES, _rounds_down))
