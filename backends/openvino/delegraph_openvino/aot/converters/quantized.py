"""`quantized_decomposed` calls -> what OpenVINO's low-precision transformations look for.

    q = quantize(x, s, z, low, high, int8)        FakeQuantize(x, …, low, high) -> Convert(i8)
    y = dequantize(q, s, z, …)                    Convert(f32) -> Subtract(z) -> Multiply(s)
    y = dequantize(quantize(x, s, z), s, z)       FakeQuantize(x, …, …): its integers are OpenVINO's choice
    w = dequantize(weight, s, z, …)               Constant(i8) -> Convert(f32) -> Subtract(z) -> Multiply(s)

On the CPU device a convolution or a matrix product of two such values is computed on integers.
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

NARROW: Final = frozenset({torch.int8, torch.uint8})


def _by_tensor(node: Node, x: Node, scale: Any, zero: Any, low: Any, high: Any, dtype: Any, *_: Any) -> str | None:
    if dtype not in NARROW:
        return f"its integers are {dtype}, not int8 or uint8"
    fixed = isinstance(scale, float) and isinstance(zero, int) and isinstance(low, int) and isinstance(high, int)
    return None if fixed else "its scale or range is not fixed"


def _by_channel(
    node: Node, x: Node, scale: Any, zero: Any, axis: int, low: Any, high: Any, dtype: Any, *_: Any
) -> str | None:
    if dtype not in NARROW:
        return f"its integers are {dtype}, not int8 or uint8"
    if dtype_of(node) == torch.float64:
        return "its result is float64"
    return None if isinstance(low, int) and isinstance(high, int) else "its range is not known"


@converts("quantized_decomposed::quantize_per_tensor", dtypes=ALL, check=_by_tensor)
def quantize(
    g: GraphBuilder, node: Node, x: Node, scale: float, zero: int, low: int, high: int, dtype: torch.dtype
) -> Output:
    reals = [(low - zero) * scale, (high - zero) * scale]
    bounds = [g.tensor(np.array(bound, np.float32)) for bound in (*reals, low, high)]
    rounded = g.op("fake_quantize", g.cast(x, torch.float32), *bounds, levels=high - low + 1)
    return g.cast(rounded, dtype)


@converts("quantized_decomposed::dequantize_per_tensor", dtypes=ALL, check=_by_tensor)
def dequantize(g: GraphBuilder, node: Node, x: Node, scale: float, zero: int, *_: Any) -> Output:
    quantize = rounding(node)
    if quantize is not None:
        return on_grid(g, node, quantize.args[0])
    return dequantized(g, node, x, np.array(scale, np.float32), np.array(zero, np.float32) if zero else None)


def rounding(node: Node) -> Node | None:
    """The quantize call by which, with `node` behind it, a value is rounded: with one scale that is fixed."""
    if node.op != "call_function" or operator_name(node) != "quantized_decomposed::dequantize_per_tensor":
        return None
    quantize = node.args[0]
    if not isinstance(quantize, Node) or quantize.args[1:6] != node.args[1:6]:
        return None
    return quantize if operator_name(quantize) == "quantized_decomposed::quantize_per_tensor" else None


def on_grid(g: GraphBuilder, dequantize: Node, x: Any) -> Output:
    """Reals on the grid of some integers, which OpenVINO then chooses itself: signed or not, as a layer takes them. It
    gives them next to the grid; what is to be on it is rounded again."""
    settings: Sequence[Any] = dequantize.args
    _, scale, zero, low, high, *_ = settings
    ends = [g.tensor(np.array((end - zero) * scale, np.float32)) for end in (low, high)]
    value = g.op("fake_quantize", g.cast(x, torch.float32), *ends, *ends, levels=high - low + 1)
    if dequantize in g.to_the_bit:
        step = g.tensor(np.array(scale, np.float32))
        value = g.op("multiply", g.op("round", g.op("divide", value, step)), step)
    return g.cast(value, dtype_of(dequantize))


def dequantized(g: GraphBuilder, node: Node, x: Node, scale: Any, zero: Any) -> Output:
    value = g.cast(g.cast(x, torch.int32) if _is_recurrent_weight(node) else x, torch.float32)
    if zero is not None:
        value = g.op("subtract", value, zero)
    value = g.op("multiply", value, scale)
    return g.cast(value, dtype_of(node))


def _is_recurrent_weight(node: Node) -> bool:
    """Whether LSTMs and GRUs read it, perhaps in another shape: their kernels want constants of floats.

    OpenVINO keeps a product of converted bytes for its kernels for integers, and folds one of wider integers.
    """
    users = [user for reader in node.users for user in (reader.users if operator_name(reader) in _VIEWS else (reader,))]
    return any(operator_name(user) in _RECURRENT for user in users)


_RECURRENT: Final = frozenset({"aten::lstm.input", "aten::gru.input"})
_VIEWS: Final = frozenset({"aten::view_copy", "aten::view"})


# zero points, at position 2, lie within the integers' own range, whatever the dtype that they come in; scales, too, may
# be float64
@converts("quantized_decomposed::dequantize_per_channel", dtypes=ALL | {torch.float64}, check=_by_channel, indexes=(2,))
def dequantize_by_channel(
    g: GraphBuilder, node: Node, x: Node, scales: Node, zeros: Node | None, axis: int, *_: Any
) -> Output:
    along = [1] * len(shape_of(x))
    along[axis] = -1
    scale, zero = (
        None if part is None else g.op("reshape", g.cast(part, torch.float32), g.vector(along), special_zero=False)
        for part in (scales, zeros)
    )
    return dequantized(g, node, x, scale, zero)
