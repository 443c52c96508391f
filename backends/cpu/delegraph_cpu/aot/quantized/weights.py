"""Weights and biases of integer kernels: constants, of int8, and of int32 in steps of the product's scale.

The content of a weight in a `.ptd` is known only when a delegate is loaded. Operators then do once what is done here to
known contents: onnxruntime folds constants when it makes a session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import Granularity, QuantizeCall, quantize_call
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.integers import Integers
from delegraph_onnx.node_facts import dtype_of

__all__ = [
    "KnownWeight",
    "Weight",
    "bias_value",
    "constant_weight",
    "float_bias",
    "in_steps",
    "is_settled",
    "symmetric_weight",
]

WeightInputs: TypeAlias = tuple[ir.Value, ir.Value, ir.Value]
"""The values, the scales by channel, the zero points by channel."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant matrix or kernel of int8, with a scale and a zero point for each channel."""

    shape: tuple[int, ...]
    zero_point: NDArray[np.int8]
    inputs: WeightInputs

    def with_bias(
        self, g: GraphBuilder, bias: Node | None, scale: float
    ) -> tuple[WeightInputs, ir.Value | None] | None:
        """The inputs, and the bias in steps of the product with an input of this scale; None if it is no constant."""
        real = bias_value(g, bias)
        if bias is None or real is None:
            return None if bias is not None else (self.inputs, None)
        # Limited to steps that fit: the scale of a channel of zeros is nearly 0, and may as well be larger.
        values, scales, zero_points = self.inputs
        least = g.op("Mul", g.op("Abs", real), g.tensor(1 / (scale * _LARGEST_BIAS), torch.float32))
        scales = g.op("Max", scales, least, g.tensor(_LEAST_SCALE, torch.float32))
        steps = g.op("Round", g.op("Div", real, g.op("Mul", scales, g.tensor(scale, torch.float32))))
        return (values, scales, zero_points), g.cast(steps, torch.int32)


@dataclass(frozen=True, slots=True)
class KnownWeight(Weight):
    """A weight whose content is known, with zero points of 0."""

    content: NDArray[np.int8]
    scale: NDArray[np.float32]
    channels: int
    """The dim that has a scale for each index"""

    def with_bias(
        self, g: GraphBuilder, bias: Node | None, scale: float
    ) -> tuple[WeightInputs, ir.Value | None] | None:
        """As `Weight.with_bias`; None also if a known bias does not fit."""
        real = float_bias(g, bias)
        if real is None:
            return Weight.with_bias(self, g, bias, scale)
        others = tuple(dim for dim in range(self.content.ndim) if dim != self.channels)
        is_zero = ~self.content.any(others)
        scales = np.where(is_zero, np.maximum(self.scale, np.abs(real) / (scale * _LARGEST_BIAS)), self.scale)
        steps = in_steps(real, np.float32(scale) * scales)
        if steps is None:
            return None
        values, _, zero_points = self.inputs
        return (values, g.constant(scales.astype(np.float32)), zero_points), g.constant(steps)


def symmetric_weight(g: GraphBuilder, node: Node, channels: int) -> KnownWeight | None:
    """The int8 constant `node`, if known, with zero points of 0 and a scale for the tensor or along dim `channels`."""
    weight = constant_weight(g, node, channels)
    return weight if isinstance(weight, KnownWeight) else None


def constant_weight(g: GraphBuilder, node: Node, channels: int) -> Weight | None:
    """The int8 constant `node`, with a scale for the tensor or along dim `channels`: a `KnownWeight`, or a weight with
    other zero points, or one whose content is not known yet."""
    integers = g.integers.get(node)
    if not isinstance(integers, Integers) or integers.content is None:
        return _external_weight(g, node, channels)
    content = integers.content
    if content.dtype != np.int8 or integers.axis not in (None, channels):
        return None
    size = content.shape[channels]
    scale, zero_point = (np.ascontiguousarray(np.broadcast_to(p, size)) for p in (integers.scale, integers.zero_point))
    # A weight and zero points for each use: onnxruntime rewrites them for processors without VNNI, and fails where two
    # operators share one. Equal large constants are stored once.
    multiplied = any(use.node.op_type != "DequantizeLinear" for use in integers.value.uses())
    # In a body it does not: there the weight is uint8 from the start, whose products with uint8 saturate nowhere.
    stored = _as_uint8 if g.is_in_body else np.asarray
    value = g.weight(node.name, stored(content)) if multiplied or g.is_in_body else integers.value
    inputs = (value, g.constant(scale), g.weight(f"{node.name}.zero_points", stored(zero_point)))
    if zero_point.any():
        return Weight(content.shape, zero_point, inputs)
    return KnownWeight(content.shape, zero_point, inputs, content, scale, channels)


def _as_uint8(array: NDArray[np.int8]) -> NDArray[np.uint8]:
    """int8 in uint8: 128 more."""
    return (array.astype(np.int16) + 128).astype(np.uint8)


def _external_weight(g: GraphBuilder, node: Node, channels: int) -> Weight | None:
    call = quantize_call(node)
    if call is None or call.quantizes or call.dtype != torch.int8 or call.axis not in (None, channels):
        return None
    if call.granularity not in (Granularity.TENSOR, Granularity.CHANNEL) or not is_settled(g, call):
        return None
    shape = tuple(int(size) for size in call.source.meta["val"].shape)
    known = np.array(0) if call.zero_point is None else g.constants.array(call.zero_point)
    if known is None or call.source not in g.external:
        return None
    zero_point = np.broadcast_to(known, shape[channels]).astype(np.int8)
    scales = g.op("Expand", g.reshape(g.tensor(call.scale, torch.float32), (-1,)), g.ints([shape[channels]]))
    inputs = (g.external_value(call.source), scales, g.weight(f"{node.name}.zero_points", zero_point))
    return Weight(shape, zero_point, inputs)


def is_settled(g: GraphBuilder, call: QuantizeCall) -> bool:
    """Whether source, scale and zero point of `call` depend on no input of a run."""
    parts = (call.source, call.scale, call.zero_point)
    return all(not isinstance(p, Node) or p in g.external or g.constants.array(p) is not None for p in parts)


# ---- biases --------------------------------------------------------------------------------------------------------


def bias_value(g: GraphBuilder, bias: Node | None) -> ir.Value | None:
    """A constant bias in float32, known or not yet."""
    real = float_bias(g, bias)
    if bias is None or real is not None:
        return None if real is None else g.constant(real)
    call = quantize_call(bias)
    settled = bias in g.external if call is None else not call.quantizes and is_settled(g, call)
    return g.value(bias) if settled and dtype_of(bias) == torch.float32 else None


def float_bias(g: GraphBuilder, bias: Node | None) -> NDArray[np.float32] | None:
    """The content of a bias, a known constant in float or half precision, or a dequantized one."""
    if bias is None:
        return None
    integers = g.integers.get(bias)
    if isinstance(integers, Integers) and integers.content is not None:
        return np.asarray((integers.content.astype(np.float32) - integers.zero_point) * integers.scale, np.float32)
    content = g.parameter(bias)
    return None if content is None or dtype_of(bias) != torch.float32 else content.astype(np.float32)


def in_steps(real: NDArray[np.float32], scale: NDArray[Any] | np.floating[Any]) -> NDArray[np.int32] | None:
    """A bias in steps of `scale`; None if it does not fit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.round(real.astype(np.float64) / np.asarray(scale, np.float64))
    if not np.isfinite(steps).all() or (np.abs(steps) > _LARGEST_BIAS).any():
        return None
    return np.asarray(steps, np.int32)


_LARGEST_BIAS = 2**30
"""Half the range of an accumulator of 32 bits, so that there is room for the products."""

_LEAST_SCALE = 1e-30
"""The scale in the place of 0, by which nothing can be divided."""
