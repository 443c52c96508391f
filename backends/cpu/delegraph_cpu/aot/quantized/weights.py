"""Weights and biases that integer kernels take: constants, int8 around 0, and int32 in steps of the product's scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from torch.fx import Node

from delegraph_cpu.aot.graph_builder import GraphBuilder
from delegraph_cpu.aot.quantized.values import Integers

__all__ = ["bias_steps", "float_bias", "symmetric_weight"]


def symmetric_weight(g: GraphBuilder, node: Node, channels: int) -> Integers | None:
    """A constant of int8 with zero points of 0, by tensor or along dim `channels`."""
    weight = g.integers.get(node)
    if not isinstance(weight, Integers) or weight.content is None or weight.content.dtype != np.int8:
        return None
    return None if weight.zero_point.any() or weight.axis not in (None, channels) else weight


def float_bias(g: GraphBuilder, bias: Node | None) -> NDArray[np.float32] | None:
    """The content of a bias, a constant in float or a dequantized one."""
    if bias is None:
        return None
    held = g.integers.get(bias)
    if isinstance(held, Integers) and held.content is not None:
        return np.asarray((held.content.astype(np.float32) - held.zero_point) * held.scale, np.float32)
    content = g.parameter(bias)
    return None if content is None or content.dtype != np.float32 else content


def bias_steps(g: GraphBuilder, bias: Node | None, scale: NDArray[Any] | np.floating[Any]) -> ir.Value | None:
    """A bias in int32, of which `scale` is one step; None if it does not fit, and without bias."""
    real = float_bias(g, bias)
    if real is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.round(real.astype(np.float64) / np.asarray(scale, np.float64))
    if not np.isfinite(steps).all() or (np.abs(steps) > _LARGEST_BIAS).any():
        return None
    return g.constant(steps.astype(np.int32))


_LARGEST_BIAS = 2**30
"""Half of what an accumulator of 32 bits holds, so that there is room for the products."""
