"""Convolutions of uint8 with a constant int8 weight, to uint8: QLinearConv.

Where the result is float they are convolutions of floats, with the weight widened at load (`narrow_weights.py`): for
integers with a float result onnxruntime has only ConvInteger, which takes 3 to 25 times as long (1.31, one thread; 64
channels to 24 in windows of one place 479 us, 204 in float; 64 in groups of one and windows of 3 x 3 2364 us, 148).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir
from torch.fx import Node

from delegraph_cpu.aot.quantized.table import activation, integers_for
from delegraph_cpu.aot.quantized.transposed import conv_transpose
from delegraph_cpu.aot.quantized.weights import KnownWeight, Weight, constant_weight
from delegraph_onnx.converters.convolution import geometry, is_transposed
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.integers import Integers
from delegraph_onnx.node_facts import rank_of


@integers_for(
    """conv1d conv2d conv3d conv1d.padding conv2d.padding conv3d.padding convolution _convolution
    conv_transpose1d conv_transpose2d.input conv_transpose3d.input"""
)
def conv(g: GraphBuilder, node: Node, input: Node, weight: Node, bias: Node | None, *_: object) -> Integers | None:
    if is_transposed(node):
        return conv_transpose(g, node, input, weight, bias)
    result_grid = g.wanted.get(node)
    if result_grid is None or rank_of(input) != rank_of(weight):
        return None
    taken, factors = activation(g, input), constant_weight(g, weight, 0)
    if taken is None or factors is None or len(set(factors.zero_point)) > 1:  # which QLinearConv does not take
        return None
    attributes = geometry(node, input, look_through=False)[1]
    (x, grid), pads = taken, attributes["pads"]
    x, attributes["pads"] = _without_padding(g, x, pads)
    biased = factors.with_bias(g, bias, grid.scale)
    if biased is None:
        return None
    (values, *of_channels), steps = biased
    if factors.shape[1] == _AWKWARD and attributes["group"] == 1:
        x, values = _with_a_channel_more(g, x, factors)
    inputs = (x.value, *x.inputs(g), values, *of_channels, *result_grid.inputs(g), steps)
    return Integers.on(g.op("QLinearConv", *inputs, **attributes), result_grid)


_AWKWARD = 3
"""The channels of a picture: onnxruntime gathers them byte by byte, but four at once. MobileNetV2's first convolution
takes 1252 us with 3 and 631 with 4 (1.31, one thread)."""


def _with_a_channel_more(g: GraphBuilder, x: Integers, weight: Weight) -> tuple[Integers, ir.Value]:
    """The same product with one channel more, which is 0 in both.

    x (n, 3, …) ── QLinearConv w (m, 3, …)   ──>   x ── Pad ── QLinearConv w (m, 4, …)
    """
    dims = len(weight.shape)
    amounts = np.zeros((2, dims), np.int64)
    amounts[1, 1] = 1
    ends, values = g.constant(amounts.reshape(-1)), weight.inputs[0]
    padded = replace(x, value=g.op("Pad", x.value, ends, g.constant(x.zero_point), mode="constant"))
    if not isinstance(weight, KnownWeight):
        return padded, g.op("Pad", values, ends, g.constant(np.array(0, np.int8)), mode="constant")
    content = np.pad(weight.content, [(0, 0), (0, 1)] + [(0, 0)] * (dims - 2))
    return padded, g.weight(values.name or "weight", content)


def _without_padding(g: GraphBuilder, x: Integers, pads: Sequence[int]) -> tuple[Integers, Sequence[int]]:
    """`x` without a padding by the integer of 0, if that pads only the convolved dims; and the pads of both.

    real ── Pad 0 ── QuantizeLinear ── QLinearConv          real ── QuantizeLinear ── QLinearConv pads
    integers ── Pad zero point ── QLinearConv         ──>   integers ── QLinearConv pads
    """
    quantize = x.value.producer()
    if quantize is None or quantize.op_type != "QuantizeLinear":
        padding = _padding(x.value, x.zero_point, pads)
        return (x, pads) if padding is None else (replace(x, value=padding[0]), padding[1])
    real, *parameters = quantize.inputs
    padding = None if real is None else _padding(real, 0, pads)
    if padding is None:
        return x, pads
    return replace(x, value=g.op("QuantizeLinear", padding[0], *parameters)), padding[1]


def _padding(padded: ir.Value, zero: Any, pads: Sequence[int]) -> tuple[ir.Value, Sequence[int]] | None:
    """The source of `padded`, if that only adds `zero` to the convolved dims, and all pads, `pads` included."""
    pad = padded.producer()
    if pad is None or pad.op_type != "Pad" or pad.attributes["mode"].as_string() != "constant":
        return None
    source, amounts, fill, *axes = pad.inputs
    assert source is not None and amounts is not None and fill is not None
    if amounts.const_value is None or fill.const_value is None or axes:
        return None
    dims = len(pads) // 2
    begins, ends = np.split(amounts.const_value.numpy(), 2)
    outer = [*begins[:-dims], *ends[:-dims]]
    if any(outer) or (begins < 0).any() or (ends < 0).any() or fill.const_value.numpy() != zero:
        return None
    return source, [int(a + b) for a, b in zip(pads, [*begins[-dims:], *ends[-dims:]], strict=True)]
