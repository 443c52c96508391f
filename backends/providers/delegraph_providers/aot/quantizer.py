"""ATen program -> annotations of calls that Qualcomm's HTP computes on integers: the quantizer that users name "qnn".

    x ─> q/dq ─> conv ─> norm ─> relu ─> q/dq ─> max_pool ─> q/dq ─> + ─> q/dq

The provider takes a call for integers only if all that it reads, and what it gives, is on a grid; a value that moves
keeps its grid. A norm and a limit behind a layer are computed with it. What is not annotated is computed in float16.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import torch
from torch.fx import GraphModule, Node

from delegraph.aot import (
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
from delegraph.errors import LoweringError
from delegraph.interfaces import Quantizer

__all__ = ["QnnQuantizer", "qnn_quantizer"]

aten = torch.ops.aten

NORMS: Final = frozenset({aten.batch_norm.default})
LIMITS: Final = frozenset({aten.relu.default, aten.relu6.default, aten.hardtanh.default, aten.clamp.default})
VALUES: Final = frozenset(
    {
        *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.matmul.default, aten.bmm.default),
        *(aten.softmax.int, aten.sigmoid.default, aten.tanh.default, aten.gelu.default, aten.hardswish.default),
        *(aten.hardsigmoid.default, aten.silu.default, aten.elu.default, aten.leaky_relu.default),
        *(aten.mean.dim, aten.avg_pool2d.default, aten.adaptive_avg_pool2d.default),
        *LIMITS,
    }
)
"""Calls that compute: each operand and the result has a grid of its own."""
MOVES: Final = frozenset(
    {
        *(aten.view.default, aten.reshape.default, aten.flatten.using_ints, aten.permute.default, aten.transpose.int),
        *(aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default, aten.slice.Tensor, aten.select.int),
        *(aten.contiguous.default, aten.clone.default, aten.dropout.default, aten.expand.default, aten.cat.default),
        *(aten.max_pool2d.default, aten.t.default),
    }
)
"""Calls whose results are elements of their operands."""


def qnn_quantizer(*, recipe: str | Recipe = "int8") -> Quantizer:
    """A quantizer for `QnnProvider`, for a static recipe with weights of 8 bits, or one by its name with options.

    "int16x8" has values of 16 bits. Raises what `recipe_named` raises, and `LoweringError` for a recipe of other
    weights, or whose ranges are not known ahead of time.
    """
    resolved = recipe_named(recipe)
    if resolved.activation_bits is None or resolved.weight_bits != 8 or resolved.dynamic:
        raise LoweringError(
            f"quantizer 'qnn' annotates values whose ranges are known ahead of time, as the processor needs them, and"
            f" weights of 8 bits; recipe {resolved.name!r} has others: use int8, int8_per_tensor or int16x8"
        )
    return QnnQuantizer(resolved)


class QnnQuantizer:
    """torchao's `Quantizer`, in all methods that torchao calls, for a recipe; see `qnn_quantizer`."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe, self._activation = recipe, activation_spec(recipe)
        if recipe.activation_bits == 16:  # all of uint16: no limit stands between a layer and its rounding then
            self._activation = replace(self._activation, quant_min=-32768, qscheme=torch.per_tensor_affine)

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Cut attentions into their products, which are computed on integers."""
        cut_attention(model)
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate calls in their order: one that moves integers stands behind the call that computes them."""
        for node in model.graph.nodes:
            if node.op == "call_function" and annotation_of(node) is None and is_float_tensor(node, {torch.float32}):
                self._annotate(node)
        return model

    def validate(self, model: GraphModule) -> None:
        """No check is needed: what the provider does not take for integers it computes in float16, or leaves."""

    def reason(self, node: Node) -> str | None:
        """The reason why the quantizer leaves a call of floats."""
        if channel_dim(node) is not None:
            return "it rounds layers whose weights are the model's"
        if node.target in MOVES | VALUES:
            return float_operand(node) or "its operands are no float32"
        return "the processor computes it in float16"

    def _annotate(self, node: Node) -> None:
        values = operands_of(node)
        channels = channel_dim(node)
        if channels is not None:
            taken, kernel = node.args[:2]
            if is_weight(kernel):
                inputs = {taken: self._activation, kernel: weight_spec(self._recipe, channels)}
                annotate(node, inputs, self._activation, _fused(node, _is_norm, _is_limit))
        elif not values or not all(is_float_tensor(value, {torch.float32}) for value in values):
            return
        elif node.target in VALUES:
            annotate(node, dict.fromkeys(values, self._activation), self._activation, _fused(node, _is_limit))
        elif node.target in MOVES and all(map(is_quantized, values)):
            self._move(node, values)

    def _move(self, node: Node, values: list[Node]) -> None:
        """The result has the grid of the operand; of several, all have that of the first."""
        if len(values) > 1:
            annotate(node, *joined_specs(node, dict.fromkeys(values, self._activation), self._activation))
        else:
            annotate(node, {values[0]: self._activation}, shared_spec((values[0], node)))


def _fused(node: Node, *kinds: Callable[[Node], bool]) -> list[Node]:
    """The calls of `kinds` that are computed with `node`."""
    if node.target is aten.linear.default and node.meta["val"].dim() > 2:
        return []  # it is Gemm of rows, and the limit stands behind the reshaped result
    return fused_calls(node, *kinds)


def _is_norm(node: Node) -> bool:
    return node.target in NORMS


def _is_limit(node: Node) -> bool:
    return node.target in LIMITS
