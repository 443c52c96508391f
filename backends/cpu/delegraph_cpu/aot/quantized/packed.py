"""Linear layers of floats whose weights alone are quantized, to 8 or 4 bits: MatMulNBits, which reads them packed.

A weight of 4 bits arrives as two codes a byte, the lower half first, unpacked by calls that are matched here and then
left out. One of 8 bits is stored as the sum of two of 4: `w = 16 * high + low`, beside each other along the inner dim,
which the input is repeated for. Their kernel computes in float32; the one for 8 bits would round the input, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph_cpu.aot.converters.table import Converter, schema_arguments
from delegraph_cpu.aot.graph_builder import GraphBuilder, TensorLike, dtype_of, rank_of
from delegraph_cpu.aot.quantized.q_dq import constant_content
from delegraph_cpu.aot.quantized.table import operator_name
from delegraph_cpu.aot.quantized.values import CONTRIB, Integers

__all__ = ["unpacking_converter", "weight_only_linear"]

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Nibbles:
    """A weight (rows, inner) of 4 bits as MatMulNBits has it: two codes a byte, a scale and a zero point a group."""

    codes: Bytes
    """(rows, groups, group / 2)"""
    scales: NDArray[np.float32]
    """(rows, groups)"""
    zero_points: NDArray[np.integer[Any]]
    """(rows, groups), 0 to 15"""

    @property
    def group(self) -> int:
        return 2 * int(self.codes.shape[2])

    @property
    def inner(self) -> int:
        return int(self.codes.shape[1]) * self.group


def weight_only_linear(g: GraphBuilder, node: Node, input: Node, weight: Node, bias: Node | None) -> ir.Value | None:
    """`input @ weight.T + bias` in float32, if the weight is a constant of a form known here."""
    if str(dtype_of(input)) != "torch.float32" or rank_of(input) < 1:
        return None
    x = g.value(input)
    nibbles = _packed_weight(g, weight)
    if nibbles is None:
        nibbles = _split_bytes(g.integers.get(weight))
        x = x if nibbles is None else g.op("Concat", x, x, axis=-1)
    if nibbles is None:
        return None
    product = _matmul(g, weight.name, x, nibbles)
    return product if bias is None else g.op("Add", product, g.value(bias))


def _matmul(g: GraphBuilder, name: str, x: ir.Value, weight: _Nibbles) -> ir.Value:
    rows = weight.codes.shape[0]
    zero_points = None
    if (weight.zero_points != _DEFAULT_ZERO_POINT).any():
        zero_points = g.weight(f"{name}.zero_points", _pairs(weight.zero_points))
    return g.op(
        "MatMulNBits",
        x,
        g.weight(f"{name}.codes", weight.codes),
        g.weight(f"{name}.scales", weight.scales.reshape(-1)),
        zero_points,
        domain=CONTRIB,
        K=weight.inner,
        N=rows,
        bits=4,
        block_size=weight.group,
        accuracy_level=_IN_FLOAT32,
    )


_DEFAULT_ZERO_POINT: Final = 8
_IN_FLOAT32: Final = 1
"""`accuracy_level` of MatMulNBits; with 4 it would round blocks of the input to int8."""


def _pairs(codes: NDArray[np.integer[Any]]) -> Bytes:
    """Two codes of 4 bits a byte, the lower half first; an odd last one is alone in its."""
    even = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, codes.shape[-1] % 2)]).astype(np.uint8)
    return np.asarray(even[..., ::2] | even[..., 1::2] << 4, np.uint8)


# ---- 8 bits -------------------------------------------------------------------------------------------------------


def _split_bytes(weight: object) -> _Nibbles | None:
    """An int8 weight with scales by row or for all of it, as two weights of 4 bits along the inner dim."""
    if not isinstance(weight, Integers) or weight.content is None or weight.content.dtype != np.int8:
        return None
    content = weight.content
    if content.ndim != 2 or weight.axis not in (None, 0) or weight.zero_point.any():
        return None
    rows, inner = content.shape
    group = next((size for size in _GROUPS if inner % size == 0), None)
    if group is None:
        return None
    unsigned = (content.view(np.uint8) ^ np.uint8(128)).astype(np.uint8)  # 128 higher
    halves = np.concatenate([unsigned >> 4, unsigned & 15], 1)
    groups = inner // group
    steps = np.repeat(np.array([16, 1], np.float32), groups)
    scales = np.broadcast_to(np.reshape(weight.scale, (-1, 1)), (rows, 1)) * steps
    zero_points = np.broadcast_to(np.repeat(np.array([8, 0]), groups), (rows, 2 * groups))
    return _Nibbles(_pairs(halves).reshape(rows, 2 * groups, group // 2), scales.astype(np.float32), zero_points)


_GROUPS: Final = (256, 128, 64, 32, 16)
"""What MatMulNBits takes, the fewest scales first."""


# ---- 4 bits -------------------------------------------------------------------------------------------------------


def _packed_weight(g: GraphBuilder, weight: Node) -> _Nibbles | None:
    """The weight behind `view(dequantize_per_channel(view(pairs(packed)), scales, zero_points, 0, 0, 15))`."""
    rows = _source(weight, _VIEWS) or weight
    if operator_name(rows) != "quantized_decomposed::dequantize_per_channel":
        return None
    codes, scales, zero_points, axis, *_ = schema_arguments(rows)
    packed = _unpacked_from(g, codes)
    factors = constant_content(g, scales)
    zeros = np.zeros(1) if zero_points is None else constant_content(g, zero_points)
    if packed is None or factors is None or zeros is None or axis != 0:
        return None
    count, groups = packed.shape[0], factors.size // packed.shape[0]
    given = packed.shape[1] * 2 // max(groups, 1)
    group = next((size for size in _GROUPS if given % size == 0), None)
    if group is None or given * groups != packed.shape[1] * 2:
        return None
    zeros = np.broadcast_to(zeros, factors.size).reshape(count, groups).astype(np.int64)
    scale = factors.reshape(count, groups).astype(np.float32)
    times = given // group  # of the groups that the kernel takes, for one that was given
    codes = packed.reshape(count, groups * times, group // 2)
    return _Nibbles(codes, scale.repeat(times, 1), zeros.repeat(times, 1))


def _unpacked_from(g: GraphBuilder, codes: object) -> Bytes | None:
    """The constant bytes whose lower and higher halves, each beside its other, are `codes`."""
    joined = _source(codes, _VIEWS)
    if joined is None or operator_name(joined) not in ("aten::cat", "aten::stack"):
        return None
    halves = [_source(half, _UNSQUEEZES) or half for half in joined.args[0]]  # type: ignore[union-attr]
    if len(halves) != 2 or not all(isinstance(half, Node) for half in halves):
        return None
    low, high = halves
    if operator_name(low) != "aten::bitwise_and.Scalar" or low.args[1] != 15:  # type: ignore
        return None
    if operator_name(high) != "aten::div.Tensor_mode" or high.kwargs.get("rounding_mode") != "floor":  # type: ignore
        return None
    source = low.args[0]  # type: ignore[union-attr]
    same = high.args[0] is source and g.number(high.args[1]) == 16  # type: ignore
    packed = g.parameter(source)
    return packed if same and packed is not None and packed.dtype == np.uint8 and packed.ndim == 2 else None


def _source(node: object, names: frozenset[str]) -> Node | None:
    """What `node` is made of by one of the operators."""
    found = node.args[0] if isinstance(node, Node) and operator_name(node) in names else None
    return found if isinstance(found, Node) else None


# ---- codes for which there is no kernel: unpacked at run time ------------------------------------------------------


def unpacking_converter(node: Node) -> Converter | None:
    """The converter of a call that takes a half of packed codes, if `node` is one."""
    packed = isinstance(node.args[0], Node) and dtype_of(node.args[0]) == torch.uint8 if node.args else False
    return _HALVES.get(operator_name(node)) if packed else None


def _lower_half(g: GraphBuilder, node: Node, packed: Node, mask: int) -> ir.Value:
    return g.op("BitwiseAnd", g.value(packed), g.constant(np.array(mask, np.uint8)))


def _higher_half(g: GraphBuilder, node: Node, packed: Node, divisor: TensorLike, rounding_mode: str) -> ir.Value:
    wide = [g.cast(g.tensor(value, torch.uint8), torch.int32) for value in (packed, divisor)]
    return g.cast(g.op("Div", *wide), torch.uint8)


def _rounds_down(node: Node, packed: Node, divisor: object, rounding_mode: str | None) -> str | None:
    return None if rounding_mode == "floor" else f"division of bytes with rounding mode {rounding_mode}"


_BYTES: Final = frozenset({torch.uint8})
_HALVES: Final = {
    "aten::bitwise_and.Scalar": Converter(_lower_half, _BYTES),
    "aten::div.Tensor_mode": Converter(_higher_half, _BYTES, _rounds_down),
}

_VIEWS: Final = frozenset({"aten::view_copy", "aten::view", "aten::reshape", "aten::_unsafe_view"})
_UNSQUEEZES: Final = frozenset({"aten::unsqueeze_copy", "aten::unsqueeze"})
