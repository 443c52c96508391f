"""Weights and biases that integer kernels take: constants, int8 around 0, and int32 in steps of the product's scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph_cpu.aot.graph_builder import GraphBuilder, dtype_of
from delegraph_cpu.aot.quantized.values import Integers

__all__ = ["Weight", "bias_steps", "float_bias", "in_steps", "symmetric_weight"]


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant matrix or kernel of int8 around 0, with a scale for each channel.

    `inputs` are what operators take: the values, the scales, the zero points.
    """

    content: NDArray[np.int8]
    scale: NDArray[np.float32]
    inputs: tuple[ir.Value, ir.Value, ir.Value]


def symmetric_weight(g: GraphBuilder, node: Node, channels: int) -> Weight | None:
    """The constant of int8 that `node` is, with zero points of 0, by tensor or along dim `channels`."""
    weight = g.integers.get(node)
    if not isinstance(weight, Integers) or weight.content is None or weight.content.dtype != np.int8:
        return None
    if weight.zero_point.any() or weight.axis not in (None, channels):
        return None
    content = weight.content
    scale = np.ascontiguousarray(np.broadcast_to(weight.scale, content.shape[channels]))
    # A weight and zero points for each use: onnxruntime rewrites them for processors without VNNI, and fails where two
    # operators share one. What is equal and large is stored once.
    value = g.weight(node.name, content) if _is_multiplied(weight.value) else weight.value
    zero_points = g.weight(f"{node.name}.zero_points", np.zeros(scale.shape, np.int8))
    return Weight(content, scale, (value, g.constant(scale), zero_points))


def _is_multiplied(value: ir.Value) -> bool:
    return any(use.node.op_type != "DequantizeLinear" for use in value.uses())


def float_bias(g: GraphBuilder, bias: Node | None) -> NDArray[np.float32] | None:
    """The content of a bias, a constant in float or half precision, or a dequantized one."""
    if bias is None:
        return None
    held = g.integers.get(bias)
    if isinstance(held, Integers) and held.content is not None:
        return np.asarray((held.content.astype(np.float32) - held.zero_point) * held.scale, np.float32)
    content = g.parameter(bias)
    return None if content is None or dtype_of(bias) != torch.float32 else content.astype(np.float32)


def bias_steps(g: GraphBuilder, bias: Node | None, scale: NDArray[Any] | np.floating[Any]) -> ir.Value | None:
    """A bias in int32, of which `scale` is one step; None if it does not fit, and without bias."""
    real = float_bias(g, bias)
    if real is None:
        return None
    steps = in_steps(real, scale)
    return None if steps is None else g.constant(steps)


def in_steps(real: NDArray[np.float32], scale: NDArray[Any] | np.floating[Any]) -> NDArray[np.int32] | None:
    """A bias in steps of `scale`; None if it does not fit."""
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.round(real.astype(np.float64) / np.asarray(scale, np.float64))
    if not np.isfinite(steps).all() or (np.abs(steps) > _LARGEST_BIAS).any():
        return None
    return np.asarray(steps, np.int32)


_LARGEST_BIAS = 2**30
"""Half of what an accumulator of 32 bits holds, so that there is room for the products."""
