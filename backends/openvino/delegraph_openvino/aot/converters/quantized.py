"""`quantized_decomposed` calls -> what OpenVINO's low-precision transformations look for.

    q = quantize(x, s, z, low, high, int8)        FakeQuantize(x, …, low, high) -> Convert(i8)
    y = dequantize(q, s, z, …)                    Convert(f32) -> Subtract(z) -> Multiply(s)
    y = dequantize(quantize(x, s, z), s, z)       FakeQuantize(x, …, …): its integers are OpenVINO's choice
    w = dequantize(weight, s, z, …)               Constant(i8) -> Convert(f32) -> Subtract(z) -> Multiply(s)

On the CPU device a convolution or a matrix product of two such values is computed on integers. Where scale and zero
point are found in the run (dynamic quantization), the same is written out, and computed in float32:

    s, z = choose_qparams(x, low, high, eps)      ReduceMin, ReduceMax -> Subtract -> Divide, …
    q = quantize(x, s, z, low, high, int8)        Divide(s) -> Round -> Add(z) -> Clamp(low, high) -> Convert(i8)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from openvino import Output
from torch.fx import Node

from delegraph.aot.authoring import operator_name
from delegraph_openvino.aot.graph_builder import GraphBuilder, dtype_of, shape_of
from delegraph_openvino.aot.table import ALL, converts

_NARROW: Final = frozenset({torch.int8, torch.uint8})
_KINDS: Final = ALL | {torch.float64}


def _by_tensor(node: Node, x: Node, scale: Any, zero: Any, low: Any, high: Any, dtype: Any, *_: Any) -> str | None:
    if dtype not in _NARROW:
        return f"its integers are {dtype}, not int8 or uint8"
    fixed = isinstance(scale, float) and isinstance(zero, int) and isinstance(low, int) and isinstance(high, int)
    return None if fixed else "its scale or range is not fixed"


def _by_channel(
    node: Node, x: Node, scale: Any, zero: Any, axis: int, low: Any, high: Any, dtype: Any, *_: Any
) -> str | None:
    if dtype not in _NARROW:
        return f"its integers are {dtype}, not int8 or uint8"
    return None if isinstance(low, int) and isinstance(high, int) else "its range is not known"


@converts("quantized_decomposed::quantize_per_tensor", dtypes=_KINDS, check=_by_tensor)
def quantize(
    g: GraphBuilder, node: Node, x: Node, scale: float, zero: int, low: int, high: int, dtype: torch.dtype
) -> Output:
    reals = [(low - zero) * scale, (high - zero) * scale]
    bounds = [g.tensor(np.array(bound, np.float32)) for bound in (*reals, low, high)]
    rounded = g.op("fake_quantize", g.cast(x, torch.float32), *bounds, levels=high - low + 1)
    return g.cast(rounded, dtype)


@converts("quantized_decomposed::dequantize_per_tensor", dtypes=_KINDS, check=_by_tensor)
def dequantize(g: GraphBuilder, node: Node, x: Node, scale: float, zero: int, *_: Any) -> Output:
    quantize = rounding(node)
    if quantize is not None:
        return on_grid(g, node, quantize.args[0])
    return _dequantized(g, node, x, np.array(scale, np.float32), np.array(zero, np.float32) if zero else None)


def rounding(node: Node) -> Node | None:
    """The quantize call by which, with `node` behind it, a value is rounded: with one scale that is fixed."""
    if node.op != "call_function" or operator_name(node) != "quantized_decomposed::dequantize_per_tensor":
        return None
    quantize = node.args[0]
    if not isinstance(quantize, Node) or quantize.args[1:6] != node.args[1:6]:
        return None
    return quantize if operator_name(quantize) == "quantized_decomposed::quantize_per_tensor" else None


def on_grid(g: GraphBuilder, dequantize: Node, x: Any) -> Output:
    """Reals on the grid of some integers, which OpenVINO then chooses itself: signed or not, as a layer takes them."""
    settings: Sequence[Any] = dequantize.args
    _, scale, zero, low, high, *_ = settings
    ends = [g.tensor(np.array((end - zero) * scale, np.float32)) for end in (low, high)]
    value = g.op("fake_quantize", g.cast(x, torch.float32), *ends, *ends, levels=high - low + 1)
    return g.cast(value, dtype_of(dequantize))


# ---- scales that are found in the run -----------------------------------------------------------------------------


def _range_is_known(node: Node, x: Node, low: Any, high: Any, *_: Any) -> str | None:
    return None if isinstance(low, int) and isinstance(high, int) else "its range is not known"


def _by_found(node: Node, x: Node, scale: Any, zero: Any, low: Any, high: Any, dtype: Any, *_: Any) -> str | None:
    if dtype not in _NARROW:
        return f"its integers are {dtype}, not int8 or uint8"
    return _range_is_known(node, x, low, high)


_FOUND: Final = tuple(f"quantized_decomposed::{name}_per_tensor.tensor" for name in ("quantize", "dequantize"))


def _found_for_calls(node: Node, x: Node, low: Any, high: Any, *_: Any) -> str | None:
    """Scales are float64, which OpenVINO has not: they stay inside."""
    for found in node.users:
        for user in found.users:
            if user.op != "call_function" or operator_name(user) not in _FOUND or user.args[5] not in _NARROW:
                return f"its scale is float64, and {user.name}, which reads it, is left"
    return _range_is_known(node, x, low, high)


# as torch's determine_qparams (torch/ao/quantization/utils.py): zero is among the values, and is met exactly
@converts("quantized_decomposed::choose_qparams.tensor", dtypes=_KINDS, check=_found_for_calls)
def choose_qparams(
    g: GraphBuilder, node: Node, x: Node, low: int, high: int, eps: float, *_: Any
) -> tuple[Output, Output]:
    values, axes = g.cast(x, torch.float32), g.vector(range(len(shape_of(x))))
    zero = np.array(0, np.float32)
    least = g.op("minimum", g.op("reduce_min", values, axes), zero)
    most = g.op("maximum", g.op("reduce_max", values, axes), zero)
    step = g.op("divide", g.op("subtract", most, least), np.array(high - low, np.float32))
    scale = g.op("maximum", step, np.array(eps, np.float32))
    shift = g.op("subtract", np.array(low, np.float32), g.op("round", g.op("divide", least, scale)))
    point = g.op("clamp", shift, min_value=low, max_value=high)
    return g.reshape(scale, [1]), g.reshape(point, [1])


@converts("quantized_decomposed::quantize_per_tensor.tensor", dtypes=_KINDS, check=_by_found, indexes=(2,))
def quantize_by_found(
    g: GraphBuilder, node: Node, x: Node, scale: Node, zero: Node, low: int, high: int, dtype: torch.dtype
) -> Output:
    steps = g.op("round", g.op("divide", g.cast(x, torch.float32), g.cast(scale, torch.float32)))
    shifted = g.op("add", steps, g.cast(zero, torch.float32))
    return g.cast(g.op("clamp", shifted, min_value=low, max_value=high), dtype)


@converts("quantized_decomposed::dequantize_per_tensor.tensor", dtypes=_KINDS, check=_by_found, indexes=(2,))
def dequantize_by_found(g: GraphBuilder, node: Node, x: Node, scale: Node, zero: Node, *_: Any) -> Output:
    return _dequantized(g, node, x, g.cast(scale, torch.float32), g.cast(zero, torch.float32))


def _dequantized(g: GraphBuilder, node: Node, x: Node, scale: Any, zero: Any) -> Output:
    value = g.cast(x, torch.float32)
    if zero is not None:
        value = g.op("subtract", value, zero)
    value = g.op("multiply", value, scale)
    return g.cast(value, dtype_of(node))


# zero points, at position 2, lie within the integers' own range, whatever the dtype that they come in
@converts("quantized_decomposed::dequantize_per_channel", dtypes=_KINDS, check=_by_channel, indexes=(2,))
def dequantize_by_channel(
    g: GraphBuilder, node: Node, x: Node, scales: Node, zeros: Node | None, axis: int, *_: Any
) -> Output:
    along = [1] * len(shape_of(x))
    along[axis] = -1
    scale, zero = (
        None if part is None else g.op("reshape", g.cast(part, torch.float32), g.vector(along), special_zero=False)
        for part in (scales, zeros)
    )
    return _dequantized(g, node, x, scale, zero)
