"""Normalisation and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph.aot.authoring import named_arguments
from delegraph_onnx.converters.not_a_number import extreme
from delegraph_onnx.converters.table import aten, convert_with, has_dims
from delegraph_onnx.dtypes import REALS
from delegraph_onnx.graph_builder import GraphBuilder, Size
from delegraph_onnx.node_facts import are_known, dtype_of, outer_dtype_of, rank_of, shape_of


def _known_shape(
    node: Node, input: Node, normalized_shape: Sequence[Size], weight: Node | None, *_: object
) -> str | None:
    if weight is None and not are_known(*normalized_shape):
        return "the normalized dims are dynamic and there is no weight"
    return None


@convert_with("layer_norm", check=_known_shape, keep=True)
@convert_with("native_layer_norm", check=_known_shape, results=3)
def layer_norm(
    g: GraphBuilder, node: Node, input: Node, shape: Sequence[Size], weight: Node | None, bias: Node | None, *_: object
) -> ir.Value:
    scale = g.value(weight) if weight is not None else g.filled(1, shape, dtype_of(input))
    shift = None if bias is None else g.value(bias)
    return g.op("LayerNormalization", g.value(input), scale, shift, axis=-len(shape), epsilon=_epsilon(node))


def _epsilon(node: Node) -> float:
    return float(named_arguments(node)["eps"])


def simplified_layer_norm(g: GraphBuilder, input: Node, weight: Node | None, eps: float) -> ir.Value:
    """onnxruntime's name for a root mean square norm, of float32 over the last dim."""
    scale = g.filled(1, shape_of(input)[-1:], torch.float32) if weight is None else g.value(weight)
    return g.op("SimplifiedLayerNormalization", g.value(input), scale, axis=-1, epsilon=eps)


@convert_with("rms_norm", keep=True)
def rms_norm(
    g: GraphBuilder, node: Node, input: Node, normalized_shape: Sequence[Size], weight: Node | None, eps: float | None
) -> ir.Value:
    """One operator over the last dim of float32, else its parts."""
    dtype, value = dtype_of(node), g.value(input)
    eps = torch.finfo(outer_dtype_of(node)).eps if eps is None else eps
    of_rows = len(normalized_shape) == 1 and isinstance(normalized_shape[0], int)
    if dtype == torch.float32 and of_rows and g.target.has("SimplifiedLayerNormalization", dtype):
        return simplified_layer_norm(g, input, weight, eps)
    axes = g.ints([-1 - i for i in range(len(normalized_shape))])
    mean = g.op("ReduceMean", g.op("Pow", value, g.tensor(2.0, dtype)), axes, keepdims=1)
    normalized = g.op("Div", value, g.op("Sqrt", g.op("Add", mean, g.tensor(eps, dtype))))
    return normalized if weight is None else g.op("Mul", normalized, g.value(weight))


# ---- per channel --------------------------------------------------------------------------------------------------


def _channels_known(node: Node, input: Node, *_: object) -> str | None:
    if rank_of(input) < 2:
        return "the input has no channels"
    return None if isinstance(shape_of(input)[1], int) else "the number of channels is dynamic"


def _scale_and_shift(g: GraphBuilder, input: Node, weight: Node | None, bias: Node | None) -> tuple[ir.Value, ir.Value]:
    """The scale and shift of each channel; by default 1 and 0."""
    dtype, channels = dtype_of(input), [shape_of(input)[1]]
    scale = g.value(weight) if weight is not None else g.filled(1, channels, dtype)
    shift = g.value(bias) if bias is not None else g.filled(0, channels, dtype)
    return scale, shift


def _is_evaluation(
    node: Node, input: Node, weight: object, bias: object, mean: object, variance: object, training: bool, *_: object
) -> str | None:
    if training or mean is None or variance is None:
        return "batch normalisation in training"
    return _channels_known(node, input)


@convert_with("batch_norm", check=_is_evaluation, keep=True)
@convert_with("_native_batch_norm_legit_no_training", check=_channels_known, keep=True, results=3)
def batch_norm(
    g: GraphBuilder, node: Node, input: Node, weight: Node | None, bias: Node | None, mean: Node, variance: Node,
    *_: object,
) -> ir.Value:  # fmt: skip
    inputs = (g.value(input), *_scale_and_shift(g, input, weight, bias), g.value(mean), g.value(variance))
    return g.op("BatchNormalization", *inputs, epsilon=_epsilon(node))


@convert_with("_native_batch_norm_legit.no_stats", check=_channels_known, results=3)
def batch_norm_of_the_batch(
    g: GraphBuilder, node: Node, input: Node, weight: Node | None, bias: Node | None, *_: object
) -> ir.Value:
    """Each channel of the whole batch is an instance: models standardise weights so, which is folded."""
    channels, value = int(shape_of(input)[1]), g.value(input)
    parameters = _scale_and_shift(g, input, weight, bias)
    if shape_of(input)[0] == 1 and rank_of(input) > 2:
        return g.op("InstanceNormalization", value, *parameters, epsilon=_epsilon(node))
    swapped = [1, 0, *range(2, rank_of(input))]
    raised = g.op("Transpose", value, perm=swapped)
    flat = g.op("Reshape", raised, g.ints([1, channels, -1]))
    normalized = g.op("InstanceNormalization", flat, *parameters, epsilon=_epsilon(node))
    result = g.op("Reshape", normalized, g.op("Shape", raised))
    return g.op("Transpose", result, perm=swapped)


@convert_with(
    "instance_norm",
    keep=True,
    check=lambda node, input, weight, bias, mean, variance, use_input_stats, *_: (
        _channels_known(node, input) if use_input_stats else "instance normalisation with running statistics"
    ),
)
def instance_norm(
    g: GraphBuilder, node: Node, input: Node, weight: Node | None, bias: Node | None, *_: object
) -> ir.Value:
    parameters = _scale_and_shift(g, input, weight, bias)
    return g.op("InstanceNormalization", g.value(input), *parameters, epsilon=_epsilon(node))


@convert_with("group_norm", keep=True, check=_channels_known, needs_elements=True)
def group_norm(
    g: GraphBuilder, node: Node, input: Node, groups: int, weight: Node | None, bias: Node | None, *_: object
) -> ir.Value:
    """Each group is an instance with one long channel; scale and shift follow per channel."""
    dtype, channels, value = dtype_of(input), shape_of(input)[1], g.value(input)
    ones, zeros = g.filled(1, [groups], dtype), g.filled(0, [groups], dtype)
    grouped = g.op("Reshape", value, g.ints([0, groups, -1]))
    normalized = g.op("InstanceNormalization", grouped, ones, zeros, epsilon=_epsilon(node))
    result = g.op("Reshape", normalized, g.op("Shape", value))
    per_channel = [int(channels), *[1] * (rank_of(input) - 2)]
    if weight is not None:
        result = g.op("Mul", result, g.reshape(g.value(weight), per_channel))
    return result if bias is None else g.op("Add", result, g.reshape(g.value(bias), per_channel))


@convert_with("native_group_norm", check=_channels_known, needs_elements=True, results=3)
def native_group_norm(
    g: GraphBuilder, node: Node, input: Node, weight: Node | None, bias: Node | None, *_: object
) -> ir.Value:
    return group_norm(g, node, input, named_arguments(node)["group"], weight, bias)


# ---- softmax ------------------------------------------------------------------------------------------------------


@convert_with("_softmax softmax.int _safe_softmax", dtypes=REALS, check=has_dims)
def softmax(g: GraphBuilder, node: Node, self: Node, dim: int, *_: object) -> ir.Value:
    dtype = dtype_of(node)
    value = g.tensor(self, dtype)
    result = g.op("Softmax", value, axis=dim)
    if node.target != aten("_safe_softmax"):
        return result
    # rows of nothing but -inf are zero, not NaN
    masked = g.op("Equal", extreme(g, "Max", value, dtype, [dim], keepdim=True), g.tensor(-math.inf, dtype))
    return g.op("Where", masked, g.tensor(0.0, dtype), result)


@convert_with("_log_softmax log_softmax.int", dtypes=REALS, check=has_dims)
def log_softmax(g: GraphBuilder, node: Node, self: Node, dim: int, *_: object) -> ir.Value:
    """Computed from its parts in float64, where onnxruntime's own operator loses NaN (1.31)."""
    value = g.tensor(self, dtype_of(node))
    if dtype_of(node) != torch.float64:
        return g.op("LogSoftmax", value, axis=dim)
    axes = g.ints([dim])
    below = g.op("Sub", value, g.op("ReduceMax", value, axes, keepdims=1))
    return g.op("Sub", below, g.op("Log", g.op("ReduceSum", g.op("Exp", below), axes, keepdims=1)))
