"""The quantizer for kernel libraries and for backends that bring none: what a recipe says, on the usual operators.

    y = conv2d(x, w, b)        x int8, w int8, b float, y int8 behind what follows alone and is fused with it (relu)
    y = add(a, b)              a, b and y int8
    y = max_pool2d(x)          no values but those of x: y has x's scale, where x is quantized
    y = cat([a, b])            a, b and y on one grid, and joined as they are; each on its own where another call reads
                               a or b, whose values are then as exact as without y
    y = softmax(x)             left in float

Dynamic recipes quantize what goes into a layer with weights, and nothing else; those of four bits what goes into a
linear layer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Target

from delegraph.aot.quantize.annotation.specs import activation_spec, weight_spec
from delegraph.aot.quantize.annotations import (
    annotate,
    annotation_of,
    float_operand,
    is_float_tensor,
    is_quantized,
    is_weight,
    joined_specs,
    shared_spec,
)
from delegraph.aot.quantize.recipes import Recipe
from delegraph.aot.quantize.weights.layer_weights import channel_dim

__all__ = ["GenericQuantizer"]

aten = torch.ops.aten

_ARITHMETIC: Final[frozenset[Target]] = frozenset(
    {
        *(aten.add.Tensor, aten.add_.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.mul_.Tensor),
        *(aten.matmul.default, aten.bmm.default),
    }
)
"""Two values -> a value."""

_RELUS: Final[frozenset[Target]] = frozenset(
    {aten.relu.default, aten.relu_.default, aten.relu6.default, aten.hardtanh.default, aten.hardtanh_.default}
)

_FUSED: Final = _RELUS | {aten.batch_norm.default}
"""Operators that a device fuses with the layer before them: their result is quantized, and the layer's own is not.
Batch norm is there in training alone; afterwards it is in the weights."""

_SAME_VALUES: Final[frozenset[Target]] = _RELUS | {
    *(aten.clamp.default, aten.max_pool1d.default, aten.max_pool2d.default, aten.avg_pool2d.default),
    *(aten.adaptive_avg_pool2d.default, aten.mean.dim, aten.flatten.using_ints, aten.view.default),
    *(aten.reshape.default, aten.permute.default, aten.transpose.int, aten.squeeze.dim, aten.unsqueeze.default),
    *(aten.slice.Tensor, aten.select.int, aten.pad.default, aten.constant_pad_nd.default),
    *(aten.upsample_nearest2d.vec, aten.dropout.default),
}
"""Operators whose results are values of the first argument, or lie between them: the scale stays."""

_NO_RULE: Final = "it has no rule for this operator, which is computed in float"

_Specs: TypeAlias = tuple[dict[Node, object], object]
"""The specs of the values that a call takes, by value, and that of its result."""


class GenericQuantizer:
    """Annotates the nodes that `filter_fn` accepts, as `recipe` says."""

    def __init__(self, recipe: Recipe, filter_fn: Callable[[Node], bool] = lambda node: True) -> None:
        self._recipe, self._filter_fn = recipe, filter_fn
        self._value = activation_spec(recipe)

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate in the order of the graph: whether a value is quantized is known when it is used."""
        for node in model.graph.nodes:
            if node.op == "call_function" and annotation_of(node) is None and self._filter_fn(node):
                specs = self._specs(node)
                if specs is not None:
                    annotate(node, *specs)
        return model

    def validate(self, model: GraphModule) -> None:
        """Everything is allowed."""

    def reason(self, node: Node) -> str | None:
        """Why it leaves a call of floats."""
        if node.target in _ARITHMETIC and any(map(is_weight, node.args[:2])):
            return "what it adds or multiplies is the model's own, and better kept exact"
        if node.target in _SAME_VALUES | {aten.cat.default}:
            return float_operand(node)
        if node.target in _ARITHMETIC and not all(map(is_float_tensor, node.args[:2])):
            return "one of its operands is a number"
        return None if node.target in _ARITHMETIC | _FUSED or channel_dim(node) is not None else _NO_RULE

    def _specs(self, node: Node) -> _Specs | None:
        channels = channel_dim(node)
        if channels is not None:
            return self._weighted(node, channels)
        if self._recipe.dynamic:
            return None
        if node.target in _ARITHMETIC:
            return self._arithmetic(node)
        if node.target is aten.cat.default:
            return self._cat(node)
        if node.target in _FUSED and _is_left(node.args[0]):
            return {}, self._result(node)
        if node.target in _SAME_VALUES:
            return self._same_values(node)
        return None

    def _weighted(self, node: Node, channels: int) -> _Specs | None:
        x, weight = node.args[:2]
        if not (is_float_tensor(x) and is_weight(weight)):
            return None
        # in dim 1 an index stands for one channel of each group, so that no scale is a single channel's
        grouped = channels == 1 and weight.meta["val"].shape[1] != node.meta["val"].shape[1]
        recipe = replace(self._recipe, weight_axis="tensor") if grouped else self._recipe
        if self._recipe.weight_bits != 8:  # `weight_only.py` stores them
            return None if self._recipe.dynamic and not _is_packed(node) else ({x: self._value}, None)
        return {x: self._value, weight: weight_spec(recipe, channels)}, self._result(node)

    def _arithmetic(self, node: Node) -> _Specs | None:
        values = [value for value in node.args[:2] if is_float_tensor(value)]
        if len(values) < 2 or any(map(is_weight, values)):
            return None  # of a number, or of a scale or a shift, better kept exact
        return dict.fromkeys(values, self._value), self._result(node)

    def _cat(self, node: Node) -> _Specs | None:
        values = node.all_input_nodes
        if not all(map(is_quantized, values)):
            return None
        return joined_specs(node, dict.fromkeys(values, self._value), self._value)

    def _same_values(self, node: Node) -> _Specs | None:
        x = node.args[0]
        if not (is_float_tensor(x) and is_quantized(x)):
            return None
        return {x: self._value}, shared_spec((x, node))

    def _result(self, node: Node) -> object:
        """The spec of the result; None where something fused follows alone, whose result is quantized instead."""
        if self._recipe.dynamic:
            return None
        user, *others = [*node.users] or [node]
        return None if not others and user.target in _FUSED and self._filter_fn(user) else self._value


def _is_packed(node: Node) -> bool:
    """Whether four bits are for the weights of a layer: those of convolutions have eight, and what those take is
    multiplied in float wherever its range is found as it runs, so that to round it would cost accuracy and time."""
    return node.target is aten.linear.default


def _is_left(value: object) -> bool:
    """Whether a call leaves the quantization of its result to the one behind it."""
    if not isinstance(value, Node) or (annotation := annotation_of(value)) is None:
        return False
    return annotation.output_qspec is None and len(value.users) == 1
