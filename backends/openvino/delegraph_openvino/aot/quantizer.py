"""ATen program -> annotations of calls that OpenVINO computes on integers: the quantizer that users name "openvino".

    conv ─> relu ─> q/dq ─> conv         the input of a layer is rounded, its result is not

    q @ k.T ─> softmax ─> q/dq ─> @ v    both operands of a product of two values are rounded, on grids about zero

OpenVINO derives the integers itself: rounding in front of a layer is done by the kernel of the layer before it, across
moves and pooling in between. A value that no layer reads stays in float, and costs no accuracy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from delegraph.aot import (
    Recipe,
    activation_spec,
    annotate,
    annotation_of,
    channel_dim,
    cut_attention,
    is_float_tensor,
    is_weight,
    recipe_named,
    weight_spec,
)
from delegraph.aot.authoring import schema_arguments
from delegraph.errors import LoweringError
from delegraph.interfaces import Quantizer

__all__ = ["OpenVinoQuantizer", "openvino_quantizer"]

aten = torch.ops.aten

SUMS: Final = frozenset({aten.add.Tensor, aten.add_.Tensor})
PRODUCTS: Final = frozenset({aten.matmul.default, aten.bmm.default})
SOFTMAXES: Final = frozenset({aten.softmax.int, aten._softmax.default})
AVERAGES: Final = frozenset({aten.adaptive_avg_pool2d.default, aten.avg_pool2d.default, aten.mean.dim})
THROUGH: Final = frozenset(
    {
        *(
            aten.batch_norm.default,
            aten.relu.default,
            aten.relu_.default,
            aten.hardtanh.default,
            aten.hardtanh_.default,
        ),
        *(aten.relu6.default, aten.clamp.default, aten.dropout.default, aten.max_pool2d.default, aten.cat.default),
    }
)
"""Calls behind a convolution that are computed with it, or on its integers."""


def openvino_quantizer(*, recipe: str | Recipe = "int8") -> Quantizer:
    """A quantizer for `OpenVinoIR`, for a recipe, or one by its name with options: `"int8{observer=minmax}"`.

    "int8" and "int8_per_tensor" round the inputs of convolutions, linear layers and attention, and sums and averages of
    convolutions; "int8_dynamic" the inputs of linear layers.

    Raises what `recipe_named` raises, and `LoweringError` for a recipe whose values or weights have other than 8 bits.
    """
    resolved = recipe_named(recipe)
    if resolved.activation_bits != 8 or resolved.weight_bits != 8:
        raise LoweringError(
            f"quantizer 'openvino' annotates values and weights of 8 bits, and recipe {resolved.name!r} has others:"
            f" delegraph.quantize(model, recipe={recipe!r}) without backends takes a general quantizer"
        )
    return OpenVinoQuantizer(resolved)


class OpenVinoQuantizer:
    """torchao's `Quantizer`, in all methods that torchao calls, for a recipe; see `openvino_quantizer`."""

    def __init__(self, recipe: Recipe) -> None:
        self._static = not recipe.dynamic
        self._activation, self._weight = activation_spec(recipe), weight_spec(recipe)
        self._transposed_weight = weight_spec(recipe, ch_axis=1)
        self._probabilities = activation_spec(replace(recipe, observer="minmax"))  # no probability is cut off
        self._about_zero = replace(self._activation, qscheme=torch.per_tensor_symmetric, quant_min=-127)

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Cut attentions into their products, which are computed on integers."""
        if self._static:
            cut_attention(model)
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate the inputs of each layer; a node that has an annotation keeps it."""
        for node in model.graph.nodes:
            if node.op == "call_function" and annotation_of(node) is None:
                inputs = self._inputs(node)
                if inputs:
                    annotate(node, inputs)
        return model

    def validate(self, model: GraphModule) -> None:
        """No check is needed: a call without an integer kernel is computed in float."""

    def reason(self, node: Node) -> str | None:
        """The reason why the quantizer leaves a call of floats."""
        if channel_dim(node) is not None or node.target in PRODUCTS:
            return "of layers whose weights are the model's, and of products of two values, it rounds what they read"
        if node.target in SUMS | AVERAGES:
            return (
                "it rounds sums and averages right behind convolutions: elsewhere it costs accuracy and saves no time"
            )
        return "OpenVINO rounds what layers, and products of two values, read, and computes this in float"

    def _inputs(self, node: Node) -> dict[Any, Any]:
        """The annotations of the inputs of `node`; none if it is not quantized."""
        by_channel = self._weight_of(node)
        if by_channel is not None:
            x, weight = node.args[:2]
            return {x: self._activation, weight: by_channel} if is_float_tensor(x) and is_weight(weight) else {}
        read = [x for x in node.args[:2] if isinstance(x, Node)]
        if node.target in PRODUCTS and self._static and is_float_tensor(node) and not any(map(is_weight, read)):
            return {x: self._probabilities if x.target in SOFTMAXES else self._about_zero for x in read}
        if not self._static or not is_float_tensor(node) or not any(map(_is_convolved, read)):
            return {}
        if node.target in SUMS and len(read) == 2 and _shape(read[0]) == _shape(read[1]):
            return dict.fromkeys(read, self._activation)
        return {read[0]: self._activation} if node.target in AVERAGES else {}

    def _weight_of(self, node: Node) -> Any:
        """The annotation of the weight of a layer; None for other calls, and for layers that stay float."""
        channels = channel_dim(node)
        if channels is None or not (self._static or node.target is aten.linear.default):
            return None
        if channels == 0:
            return self._weight
        # of several groups, dim 1 of a transposed convolution's weight is no channel of the result
        return self._transposed_weight if schema_arguments(node)[6] == 1 else None


# ---- the graph ----------------------------------------------------------------------------------------------------


def _is_convolved(node: Node) -> bool:
    """Whether `node` is a convolution, or is computed with one."""
    while node.target in THROUGH | SUMS and node.all_input_nodes:
        node = node.all_input_nodes[0]
    return channel_dim(node) is not None and node.target is not aten.linear.default


def _shape(node: Node) -> tuple[Any, ...]:
    return tuple(node.meta["val"].shape)
