"""Linear layers and matrix products of integers, and of what is quantized as it comes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot.authoring import operator_name, schema_arguments
from delegraph_cpu.aot.graph_builder import GraphBuilder, Scalar, rank_of, shape_of
from delegraph_cpu.aot.quantized.packed import weight_only_linear
from delegraph_cpu.aot.quantized.table import activation, integers_for
from delegraph_cpu.aot.quantized.values import CONTRIB, Integers
from delegraph_cpu.aot.quantized.weights import Weight, bias_steps, float_bias, symmetric_weight

# ---- calibrated ---------------------------------------------------------------------------------------------------


@integers_for("linear")
def linear(g: GraphBuilder, node: Node, input: Node, weight: Node, bias: Node | None) -> Integers | ir.Value | None:
    taken, factors = activation(g, input), symmetric_weight(g, weight, 0)
    if taken is not None and factors is not None:
        return _gemm(g, node, taken[0], factors, bias)
    return _dynamic_linear(g, input, factors, bias) or weight_only_linear(g, node, input, weight, bias)


def _gemm(g: GraphBuilder, node: Node, x: Integers, weight: Weight, bias: Node | None) -> Integers | ir.Value | None:
    """QGemm, of matrices: other dims are rows."""
    scale = x.scale * weight.scale
    steps, wanted = bias_steps(g, bias, scale), g.wanted.get(node)
    rest = None if bias is None or steps is not None else float_bias(g, bias)
    if bias is not None and steps is None and (rest is None or wanted is not None):
        return None
    rows = g.reshape(x.value, [-1, weight.content.shape[1]]) if rank_of(node) != 2 else x.value
    output = () if wanted is None else wanted.inputs(g)
    inputs = (rows, *x.inputs(g), *weight.inputs, steps, *output)
    result = g.op("QGemm", *inputs, domain=CONTRIB, transB=1)
    if rank_of(node) != 2:
        rows = g.record(result, [-1, weight.content.shape[0]])
        result = g.reshape(rows, shape_of(node), lambda: g.sizes_but_last(x.value, int(shape_of(node)[-1])))
    if wanted is not None:
        return Integers.on(result, wanted)
    return result if rest is None else g.op("Add", result, g.constant(rest))


@integers_for("mm bmm matmul")
def matmul(g: GraphBuilder, node: Node, self: Node, other: Node) -> Integers | ir.Value | None:
    return _product(g, node, self, other)


@integers_for("addmm")
def addmm(
    g: GraphBuilder, node: Node, self: Node, mat1: Node, mat2: Node, beta: Scalar, alpha: Scalar
) -> Integers | ir.Value | None:
    taken, factors = activation(g, mat1), symmetric_weight(g, mat2, 1)
    if taken is None or factors is None or (alpha, beta) != (1, 1) or rank_of(self) != 1:
        return None
    x, wanted = taken[0], g.wanted.get(node)
    steps = bias_steps(g, self, x.scale * factors.scale)
    if steps is None:
        return None
    output = () if wanted is None else wanted.inputs(g)
    inputs = (x.value, *x.inputs(g), *factors.inputs, steps, *output)
    result = g.op("QGemm", *inputs, domain=CONTRIB)
    return result if wanted is None else Integers.on(result, wanted)


def _product(g: GraphBuilder, node: Node, self: Node, other: Node) -> Integers | ir.Value | None:
    """Of two values that are quantized, or of one and a weight with scales by column."""
    left, right = activation(g, self), _right(g, other)
    if left is None or right is None or rank_of(self) < 2:
        return None
    x, wanted = left[0], g.wanted.get(node)
    if wanted is None:
        (a, a_zero), (values, b, b_zero) = x.inputs(g), right
        return g.op("MatMulIntegerToFloat", x.value, values, a, b, a_zero, b_zero, domain=CONTRIB)
    return Integers.on(g.op("QLinearMatMul", x.value, *x.inputs(g), *right, *wanted.inputs(g)), wanted)


def _right(g: GraphBuilder, other: Node) -> tuple[ir.Value, ir.Value, ir.Value] | None:
    found = activation(g, other)
    if found is not None and rank_of(other) >= 2:
        return found[0].value, *found[0].inputs(g)
    weight = symmetric_weight(g, other, 1) if rank_of(other) == 2 else None
    return None if weight is None else weight.inputs


# ---- quantized at run time ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Chosen:
    """A value that is quantized with parameters chosen from itself: `quantize(value, *choose(value))`."""

    value: Node
    choice: Node
    quantize: Node


def _dynamic_linear(g: GraphBuilder, input: Node, weight: Weight | None, bias: Node | None) -> ir.Value | None:
    chosen = None if weight is None else _chosen(input)
    if chosen is None or weight is None:
        return None
    added = float_bias(g, bias)
    if bias is not None and added is None:
        return None
    if operator_name(chosen.choice) == "quantized_decomposed::choose_qparams_per_token_asymmetric":
        return _by_token(g, chosen, weight, added)
    return _by_tensor(g, chosen, weight, added) if _is_asymmetric(chosen.choice) else None


def _by_tensor(g: GraphBuilder, chosen: _Chosen, weight: Weight, bias: NDArray[np.float32] | None) -> ir.Value:
    """onnxruntime chooses the same scale and zero point, but for a scale below torch's `eps`, where it is finer."""
    (_, scale, zero_point), added = weight.inputs, None if bias is None else g.constant(bias)
    x = g.tensor(chosen.value, torch.float32)
    return g.op("DynamicQuantizeMatMul", x, _columns(g, weight), scale, zero_point, added, domain=CONTRIB)


def _by_token(g: GraphBuilder, chosen: _Chosen, weight: Weight, bias: NDArray[np.float32] | None) -> ir.Value:
    """The integers times the weight; what the zero points of the rows add to that is known from the weight's sums.

    MatMulInteger takes one zero point for all rows.
    """
    scales, zero_points = _parameters(chosen.quantize)
    integers = g.op("BitwiseXor", g.cast(g.value(chosen.quantize), torch.uint8), g.constant(np.array(128, np.uint8)))
    products = g.op("MatMulInteger", integers, _columns(g, weight), g.constant(np.array(128, np.uint8)))
    sums = g.op("Mul", g.tensor(zero_points, torch.int32), g.constant(weight.content.sum(1, dtype=np.int32)))
    centred = g.cast(g.op("Sub", products, sums), torch.float32)
    scaled = g.op("Mul", g.op("Mul", centred, g.tensor(scales, torch.float32)), weight.inputs[1])
    return scaled if bias is None else g.op("Add", scaled, g.constant(bias))


def chosen_as_it_comes(input: Node) -> Node | None:
    """What `input` was before it was quantized, as a tensor to all of 8 bits, with parameters chosen from itself."""
    chosen = _chosen(input)
    if chosen is None or "per_token" in operator_name(chosen.choice):
        return None
    return chosen.value if _is_asymmetric(chosen.choice) else None


def _is_asymmetric(choice: Node) -> bool:
    """Whether the range is all of 8 bits, with a zero point within it."""
    _, low, high, _eps, dtype = schema_arguments(choice)
    bounds = {torch.int8: (-128, 127), torch.uint8: (0, 255)}.get(dtype)
    return "symmetric" not in operator_name(choice) and (low, high) == bounds


def _columns(g: GraphBuilder, weight: Weight) -> ir.Value:
    return g.weight(weight.inputs[0].name or "weight", weight.content.T)


def _chosen(node: Node) -> _Chosen | None:
    """The choice behind `dequantize(quantize(value, *choose(value)), …)`, with the same parameters in both."""
    if operator_name(node) not in _DEQUANTIZED_AT_RUN_TIME:
        return None
    quantize = node.args[0]
    if not isinstance(quantize, Node) or operator_name(quantize) not in _QUANTIZED_AT_RUN_TIME:
        return None
    parameters = _parameters(quantize)
    choices = {parameter.args[0] for parameter in parameters if isinstance(parameter, Node) and parameter.args}
    if _parameters(node) != parameters or len(choices) != 1:
        return None
    (choice,) = choices
    value = quantize.args[0]
    known = isinstance(choice, Node) and operator_name(choice) in _CHOICES and choice.args[0] is value
    return _Chosen(value, choice, quantize) if known else None  # type: ignore[arg-type]


def _parameters(node: Node) -> tuple[Node, Node]:
    return node.args[1], node.args[2]  # type: ignore[return-value]


_QUANTIZED_AT_RUN_TIME = {
    f"quantized_decomposed::quantize_per_t{of}" for of in ("ensor.tensor", "ensor.tensor2", "oken")
}
_DEQUANTIZED_AT_RUN_TIME = {name.replace("::", "::de") for name in _QUANTIZED_AT_RUN_TIME}
_CHOICES = {
    "quantized_decomposed::choose_qparams.tensor",
    "quantized_decomposed::choose_qparams_symmetric.tensor",
    "quantized_decomposed::choose_qparams_per_token_asymmetric",
}
