"""ATen program -> annotations of the calls that `CpuBackend` computes on integers: the quantizer that users name "cpu".

A value is quantized where an integer kernel writes or reads it. Others stay in float between integer layers: a linear
layer before GELU, or in a residual sum that is normalized, has a float result, since onnxruntime's kernel writes floats
at no cost, and rounding would cost accuracy and time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, TypeGuard

import torch
from torch.fx import GraphModule, Node

from delegraph.aot import (
    VALUE_MOVES,
    Recipe,
    activation_spec,
    annotate,
    annotation_of,
    channel_dim,
    cut_attention,
    float_operand,
    fused_calls,
    is_float_tensor,
    is_quantized,
    is_weight,
    joined_specs,
    operands_of,
    recipe_named,
    shared_spec,
    weight_spec,
)
from delegraph.aot.authoring import reduced_dims, schema_arguments
from delegraph.errors import LoweringError
from delegraph.interfaces import Quantizer

__all__ = ["CpuQuantizer", "cpu_quantizer"]

aten = torch.ops.aten

TRANSPOSED: Final = frozenset({aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input})
SOFTMAXES: Final = frozenset({aten.softmax.int, aten._softmax.default})
PRODUCTS: Final = frozenset({aten.matmul.default, aten.bmm.default})
NORMALIZATIONS: Final = frozenset({aten.batch_norm.default, aten._native_batch_norm_legit.default})
CLAMPS: Final = frozenset({aten.relu.default, aten.relu6.default, aten.hardtanh.default, aten.clamp.default})
SUMS: Final = frozenset({aten.add.Tensor, aten.mul.Tensor})
JOINS: Final = frozenset({aten.cat.default})
WINDOWS: Final = frozenset({aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default})
AVERAGES: Final = frozenset({aten.adaptive_avg_pool1d.default, aten.adaptive_avg_pool2d.default, aten.mean.dim})
MOVES: Final = VALUE_MOVES | {
    *(aten.pad.default, aten.constant_pad_nd.default, aten.pixel_shuffle.default, aten.channel_shuffle.default),
    *(aten.max_pool1d.default, aten.max_pool2d.default, aten.upsample_nearest2d.default, aten.upsample_nearest2d.vec),
}
"""Operators that are applied to the integers themselves, whatever their grid."""


def cpu_quantizer(*, recipe: str | Recipe = "int8") -> Quantizer:
    """A quantizer for `CpuBackend`, for a recipe, or one by its name with options: `"int8{observer=minmax}"`.

    Values of "int8" and "int8_per_tensor" stay in integers from layer to layer. Those of "int8_dynamic" do within a
    linear layer, and those of "int16x8" are rounded between layers that compute in float. All but the last round the
    input of an LSTM at run time, since its state is: onnxruntime has no other integer kernel for it.

    Raises what `recipe_named` raises, and `LoweringError` for a recipe that quantizes no values to 8 or 16 bits.
    """
    resolved = recipe_named(recipe)
    if resolved.activation_bits is None or resolved.weight_bits != 8:
        raise LoweringError(
            f"quantizer 'cpu' annotates values, of which recipe {resolved.name!r} quantizes none, or packs weights:"
            f" delegraph.quantize(model, recipe={recipe!r}) needs no quantizer"
        )
    return CpuQuantizer(resolved)


class CpuQuantizer:
    """torchao's `Quantizer`, in all methods that torchao calls, for a recipe; see `cpu_quantizer`."""

    def __init__(self, recipe: Recipe) -> None:
        self._static = not recipe.dynamic
        self._activation, self._weight = activation_spec(recipe), weight_spec(recipe)
        self._found_in_the_run = activation_spec(replace(recipe, dynamic=True)) if recipe.activation_bits == 8 else None
        self._transposed_weight = weight_spec(recipe, ch_axis=1)
        self._probabilities = activation_spec(replace(recipe, observer="minmax"))  # no probability is cut off
        # bytes times these do not saturate 16 bits, on any processor: two products of 255 * 63 are 32,130
        self._multiplier = replace(self._activation, qscheme=torch.per_tensor_symmetric, quant_min=-63, quant_max=63)
        self._multiplies = self._static and recipe.activation_bits == 8

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Cut large attentions into their products, which are computed on integers."""
        if self._multiplies:
            cut_attention(model, lambda node: _is_large(node.args[1]))
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate layers, then the calls between them; a node that has an annotation keeps it."""
        for node in model.graph.nodes:
            if node.op == "call_function" and annotation_of(node) is None:
                self._annotate(node)
        return model

    def validate(self, model: GraphModule) -> None:
        """No check is needed: a call without an integer kernel is computed in float."""

    def reason(self, node: Node) -> str | None:
        """The reason why the quantizer leaves a call of floats."""
        if node.target in SUMS | AVERAGES | WINDOWS | MOVES | CLAMPS | JOINS:
            return float_operand(node)
        return "integers would cost accuracy or time here: onnxruntime's kernel of floats is as fast, or the only one"

    def _annotate(self, node: Node) -> None:
        if channel_dim(node) is not None and not (is_float_tensor(node.args[0]) and is_weight(node.args[1])):
            return
        if channel_dim(node) == 0 and node.target != aten.linear.default and self._static:  # a plain convolution
            if not self._multiplies or _is_fast_on_integers(node):  # 16 bits are computed in float as it is
                self._layer(node, self._weight, output=True)
        elif node.target in TRANSPOSED and self._static and _is_convolution_of_places(node):
            self._layer(node, self._transposed_weight, output=True)
        elif node.target == aten.linear.default:
            self._layer(node, self._weight, output=self._static and _goes_to_layers(node))
        elif node.target in PRODUCTS and self._multiplies:
            self._product(node)
        elif node.target == aten.lstm.input and self._found_in_the_run is not None:
            self._recurrent(node)
        elif self._static:
            self._between(node)

    def _layer(self, node: Node, weight: Any, output: bool) -> None:
        """The input and the weight, and the result where it is normalized and limited."""
        inputs = {node.args[0]: self._activation, node.args[1]: weight}
        annotate(node, inputs, self._activation if output else None, _fused(node))

    def _product(self, node: Node) -> None:
        """The product of two values of the run."""
        left, right = node.args[:2]
        if not (_is_value(left) and _is_value(right) and _is_large(right)):
            return
        first = self._probabilities if left.target in SOFTMAXES else self._activation
        annotate(node, {left: first, right: self._multiplier}, self._activation if _goes_to_layers(node) else None)

    def _recurrent(self, node: Node) -> None:
        """The input and the matrices of an LSTM without projections."""
        input, _, params, _, layers, _, _, bidirectional, _ = schema_arguments(node)
        matrices = [param for param in params if param.meta["val"].dim() == 2]
        own = is_float_tensor(input) and all(map(is_weight, params))
        if own and len(matrices) == 2 * layers * (1 + bidirectional):
            annotate(node, {input: self._found_in_the_run, **dict.fromkeys(matrices, self._weight)})

    def _between(self, node: Node) -> None:
        """Annotate a call that computes on integers, if its inputs are integers."""
        sources = list(filter(is_float_tensor, operands_of(node)))
        if not sources or not all(map(is_quantized, sources)):
            return
        if node.target in SUMS and len(sources) == len(node.args[:2]):
            annotate(node, dict.fromkeys(sources, self._activation), self._activation, _fused(node))
        elif (node.target in AVERAGES and _averages_everything(node)) or _averages_windows(node):
            annotate(node, {sources[0]: self._activation}, self._activation)
        elif node.target in MOVES | CLAMPS:
            shared = shared_spec(sources[0])
            annotate(node, {sources[0]: shared}, shared)
        elif node.target in JOINS:
            annotate(node, *joined_specs(node, dict.fromkeys(sources, self._activation), self._activation))


# ---- the graph ----------------------------------------------------------------------------------------------------


def _is_value(argument: object) -> TypeGuard[Node]:
    """Whether `argument` is a tensor of floats that is computed at run time."""
    return is_float_tensor(argument) and not is_weight(argument)


def _is_fast_on_integers(node: Node) -> bool:
    """Whether a convolution gains from integers, or loses little: not if each of its outputs reads few channels.

    In groups, and over three dims, onnxruntime's kernel for integers takes nearly as long for one channel as for
    eight: it gathers the channels at each place of the window, however few they are. One group over one or two dims
    gains from few channels already, or loses little; so do windows of one place, and the kernel for depthwise ones.

    Between two other layers of integers on one thread, such a layer runs this many times as fast on integers as in
    float, with the quantizing and dequantizing of its values:

    - groups of 1 input, with 2 to 32 outputs: 0.11 to 0.49; of 2: 0.25 to 0.63; of 4: 0.28 to 0.93, mostly below 0.65;
      of 6: 0.35 to 0.98; of 8: 0.53 to 1.3, mostly above 0.8; of 16 and more: 0.84 to 4; depthwise: 0.95 to 2.6
    - over three dims, of 1 and 2 inputs: 0.09 to 0.32; of 3: 0.32 to 0.89; of 4 and 6: 0.42 to 0.93; of 8: 0.37 to 1.3;
      of 16 and more: 1.3 to 4.3; by windows of one place: 0.99 to 1.5
    - one group over two dims, of 1 to 4 inputs: 0.42 to 2.2, the less the fewer outputs, of which 32 gain from 3 inputs

    Weights that are left in float are few: their number is that of the channels read.
    """
    weight = node.args[1].meta["val"]  # type: ignore[union-attr]
    outputs, inputs, *kernel = weight.shape
    groups = node.args[0].meta["val"].shape[1 - weight.dim()] // inputs  # type: ignore[union-attr]
    by_rows = groups == 1 and (len(kernel) < 3 or set(kernel) == {1})
    depthwise = inputs == 1 and outputs == groups
    return inputs >= 8 or by_rows or depthwise


def _is_large(factor: Any) -> bool:
    """Whether a product with `factor` saves more than rounding its input costs: from 64 x 192 on.

    Attention of a ViT (197 rows, heads of 64) takes half the time on integers; of a BERT on 128 rows, or with heads of
    32, it takes a little more.
    """
    sizes = sorted(size for size in factor.meta["val"].shape[-2:] if isinstance(size, int))
    return len(sizes) == 2 and sizes[0] >= 64 and sizes[1] >= 192


def _fused(node: Node) -> list[Node]:
    """The calls that are computed with `node` in one kernel: a normalization, then a limit."""
    return fused_calls(node, lambda call: call.target in NORMALIZATIONS, lambda call: call.target in CLAMPS)


def _goes_to_layers(node: Node) -> bool:
    """Whether the result of `node`, moved and limited, only goes to convolutions and linear layers."""
    seen, ahead = set(), [node]
    while ahead:
        value = ahead.pop()
        for user in value.users:
            if user.target in MOVES | CLAMPS:
                if user not in seen:
                    seen.add(user)
                    ahead.append(user)
            elif channel_dim(user) != 0 or user.args[0] is not value:
                return False
    return True


def _averages_everything(node: Node) -> bool:
    """Whether the average is over all dims behind the channels."""
    rank = node.args[0].meta["val"].dim()  # type: ignore[union-attr]
    if node.target == aten.mean.dim:
        return rank > 2 and reduced_dims(rank, node.args[1]) == tuple(range(2, rank))  # type: ignore[arg-type]
    return all(size == 1 for size in node.args[1])  # type: ignore[union-attr]


def _averages_windows(node: Node) -> bool:
    """Whether the average is over windows that are all divided by the same number."""
    if node.target not in WINDOWS:
        return False
    _, _, _, padding, ceil_mode, count_include_pad, *divisor = schema_arguments(node)
    return not ceil_mode and (not any(padding) or count_include_pad or divisor[:1] not in ([], [None]))


def _is_convolution_of_places(node: Node) -> bool:
    """Whether a transposed convolution becomes a convolution of integers."""
    input, *_, dilation = schema_arguments(node)
    dynamic = [size for size in input.meta["val"].shape[2:] if not isinstance(size, int)]
    return set(dilation) == {1} and len(dynamic) < 2
