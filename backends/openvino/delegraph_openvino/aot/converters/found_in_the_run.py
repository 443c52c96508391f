"""Dynamic quantization -> OpenVINO: scale and zero point are found in the run, of a tensor or of each row.

    s, z = choose_qparams(x, low, high, eps)      ReduceMin, ReduceMax -> Subtract -> Divide, …
    q = quantize(x, s, z, low, high, int8)        Divide(s) -> Round -> Add(z) -> Clamp(low, high) -> Convert(i8)
    y = dequantize(q, s, z, …)                    Convert(f32) -> Subtract(z) -> Multiply(s)

That is for what no linear layer multiplies with integer weights: there OpenVINO's kernel rounds, by groups of 32, and
is given x (see `converters.matmul`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from openvino import Output
from torch.fx import Node

from delegraph.aot.authoring import operator_name, quantize_call
from delegraph_openvino.aot.converters.quantized import NARROW, dequantized
from delegraph_openvino.aot.graph_builder import GraphBuilder, shape_of
from delegraph_openvino.aot.table import ALL, converts

_KINDS: Final = ALL | {torch.float64}


def found_rounding(node: Node) -> Node | None:
    """What is rounded to 8 bits with a scale that is found in the run, if `node` is that, in float again."""
    call = quantize_call(node)
    rounds = None if call is None or call.quantizes or not call.is_dynamic else quantize_call(call.source)
    if call is None or rounds is None or not rounds.quantizes or rounds.choice is not call.choice:
        return None
    return rounds.source if rounds.dtype in NARROW else None


def _range_is_known(node: Node, x: Node, low: Any, high: Any, *_: Any) -> str | None:
    return None if isinstance(low, int) and isinstance(high, int) else "its range is not known"


def _by_found(node: Node, x: Node, scale: Any, zero: Any, low: Any, high: Any, dtype: Any, *_: Any) -> str | None:
    if dtype not in NARROW:
        return f"its integers are {dtype}, not int8 or uint8"
    return _range_is_known(node, x, low, high)


_FOUND: Final = frozenset(
    f"quantized_decomposed::{name}_{of}"
    for name in ("quantize", "dequantize")
    for of in ("per_tensor.tensor", "per_token")
)


def _found_for_calls(node: Node, x: Node, low: Any, high: Any, *_: Any) -> str | None:
    """Scales are float64, which OpenVINO has not: they stay inside."""
    for found in node.users:
        for user in found.users:
            if user.op != "call_function" or operator_name(user) not in _FOUND or user.args[5] not in NARROW:
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
    return dequantized(g, node, x, g.cast(scale, torch.float32), g.cast(zero, torch.float32))


# ---- a scale for each row -----------------------------------------------------------------------------------------


def _rows_for_calls(node: Node, x: Node, dtype: object) -> str | None:
    """As `_found_for_calls`."""
    return _found_for_calls(node, x, -128, 127)


# as torch's (torch/ao/quantization/fx/_decomposed.py), which takes the range of int8 for every dtype
@converts("quantized_decomposed::choose_qparams_per_token_asymmetric", dtypes=_KINDS, check=_rows_for_calls)
def choose_qparams_by_row(g: GraphBuilder, node: Node, x: Node, dtype: object) -> tuple[Output, Output]:
    values, last = g.cast(x, torch.float32), g.vector([len(shape_of(x)) - 1])
    zero, low, high = (np.array(n, np.float32) for n in (0, -128, 127))
    least = g.op("minimum", g.op("reduce_min", values, last, keep_dims=True), zero)
    most = g.op("maximum", g.op("reduce_max", values, last, keep_dims=True), zero)
    step = g.op("divide", g.op("subtract", most, least), np.array(255, np.float32))
    scale = g.op("maximum", step, np.array(torch.finfo(torch.float32).eps, np.float32))
    below, above = (g.op("divide", end, scale) for end in (least, most))
    errors = g.op("add", g.op("add", low, below), g.op("add", high, above))
    point = g.op("select", g.op("greater", errors, zero), g.op("subtract", low, below), g.op("subtract", high, above))
    return scale, g.op("round", g.op("clamp", point, min_value=-128, max_value=127))


@converts("quantized_decomposed::quantize_per_token", dtypes=_KINDS, check=_by_found, indexes=(2,))
def quantize_by_row(
    g: GraphBuilder, node: Node, x: Node, scale: Node, zero: Node, low: int, high: int, dtype: torch.dtype
) -> Output:
    times = g.op("divide", np.array(1, np.float32), g.cast(scale, torch.float32))
    steps = g.op("add", g.op("multiply", g.cast(x, torch.float32), times), g.cast(zero, torch.float32))
    return g.cast(g.op("clamp", g.op("round", steps), min_value=low, max_value=high), dtype)


@converts("quantized_decomposed::dequantize_per_token", dtypes=_KINDS, check=_by_found, indexes=(2,))
def dequantize_by_row(g: GraphBuilder, node: Node, x: Node, scale: Node, zero: Node, *_: Any) -> Output:
    return dequantized(g, node, x, g.cast(scale, torch.float32), g.cast(zero, torch.float32))
