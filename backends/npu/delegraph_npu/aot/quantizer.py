"""ATen program -> annotations of the calls that the NPU computes: the quantizer that users name "npu".

A call is annotated if the table of operators has a row for it whose check admits it: the partitioner asks the same rows
once the model is quantized.
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
    float_operand,
    fused_calls,
    is_float_tensor,
    is_quantized,
    is_weight,
    joined_specs,
    normalized_sums,
    operands_of,
    recipe_named,
    shared_spec,
    weight_spec,
)
from delegraph.errors import LoweringError
from delegraph.interfaces import Quantizer
from delegraph_npu.aot.calls import is_clamp, operator_name
from delegraph_npu.aot.operators import Annotate, row_of
from delegraph_npu.aot.splitting import slices_for_parts

__all__ = ["NpuQuantizer", "npu_quantizer"]

NORMALIZATIONS: Final = frozenset({"batch_norm", "_native_batch_norm_legit"})


def npu_quantizer(*, recipe: str | Recipe = "int8") -> Quantizer:
    """A quantizer for `NpuBackend`, for a static recipe, or one by its name with options: `"int8{observer=minmax}"`.

    "int16x8" annotates functions, sums and products of int16; layers stay float with it: the NPU multiplies int8.

    Raises what `recipe_named` raises, and `LoweringError` for a recipe whose ranges are not known ahead of time.
    """
    resolved = recipe_named(recipe)
    if resolved.activation_bits is None or resolved.weight_bits != 8 or resolved.dynamic:
        raise LoweringError(
            f"quantizer 'npu' annotates values whose ranges are known ahead of time, as the NPU needs them; recipe"
            f" {resolved.name!r} has none: use int8, int8_per_tensor or int16x8"
        )
    return NpuQuantizer(resolved)


class NpuQuantizer:
    """torchao's `Quantizer`, in all methods that torchao calls, for a recipe; see `npu_quantizer`."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe, self._activation = recipe, activation_spec(recipe)
        self._wide = activation_spec(replace(recipe, activation_bits=16))
        self._dtype = torch.int16 if recipe.activation_bits == 16 else torch.int8
        self._sums: frozenset[Node] = frozenset()

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Turn parts of tensors into slices: the NPU's operators have one result."""
        slices_for_parts(model)
        model.recompile()
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate calls that compute, then those that move integers: behind the calls that compute them, and before
        their readers."""
        self._sums = normalized_sums(model)
        calls = [node for node in model.graph.nodes if row_of(node) is not None and _is_float(node)]
        for node in calls:
            if annotation_of(node) is None:
                self._annotate(node)
        for node in reversed(calls):
            before_integers = _moves(node) and node.users and all(map(_takes_integers, node.users))
            if annotation_of(node) is None and before_integers and self._takes(node) and not is_weight(node):
                self._move(node)
        return model

    def validate(self, model: GraphModule) -> None:
        """No check is needed: `annotate` and the compiler ask the same table."""

    def reason(self, node: Node) -> str | None:
        """The reason why the quantizer leaves a call of floats."""
        row = row_of(node)
        if row is None:
            return f"the NPU has no {operator_name(node)}"
        if not _is_float(node) or not all(map(_is_float, operands_of(node))):
            return "the NPU takes tensors of float32 as integers"
        if self._dtype not in row.dtypes:
            return f"the NPU computes it on int8 alone, and the recipe has {str(self._dtype).removeprefix('torch.')}"
        return row.reason(node) or float_operand(node)

    def _annotate(self, node: Node) -> None:
        row = row_of(node)
        if row is None or not self._takes(node):
            return
        if row.annotate is Annotate.LAYER:
            self._layer(node)
        elif row.annotate is Annotate.VALUES:
            spec = self._spec(node)
            annotate(node, dict.fromkeys(operands_of(node), spec), spec, fused_calls(node, is_clamp))
        elif all(map(is_quantized, operands_of(node))):
            self._move(node)

    def _takes(self, node: Node) -> bool:
        row = row_of(node)
        assert row is not None
        return self._dtype in row.dtypes and all(map(_is_float, operands_of(node))) and row.reason(node) is None

    def _layer(self, node: Node) -> None:
        channels = channel_dim(node)
        taken, kernel = node.args[:2]
        if channels is not None and is_weight(kernel):
            inputs = {taken: self._activation, kernel: weight_spec(self._recipe, channels)}
            annotate(node, inputs, self._spec(node), fused_calls(node, _is_normalization, is_clamp))

    def _move(self, node: Node) -> None:
        """The result and further operands have the grid of the first operand; a joined operand keeps its own grid where
        another call reads it."""
        first, *rest = operands_of(node)
        if rest:
            annotate(node, *joined_specs(node, dict.fromkeys([first, *rest], self._spec(node)), self._spec(node)))
            return
        annotate(node, {first: self._spec(node)}, shared_spec((first, node)))

    def _spec(self, node: Node) -> Any:
        """The spec of the operands and results of `node`, except layers: int16 for residual sums that are
        normalized."""
        return self._wide if node in self._sums else self._activation


# ---- the graph ------------------------------------------------------------------------------------------------------


def _is_float(node: Node) -> bool:
    """Whether `node` is a tensor of float32, the only float dtype of the operators."""
    return is_float_tensor(node, {torch.float32})


def _moves(node: Node) -> bool:
    row = row_of(node)
    return row is not None and row.annotate is Annotate.MOVES


def _takes_integers(node: Node) -> bool:
    annotation = annotation_of(node)
    return annotation is not None and bool(annotation.input_qspec_map)


def _is_normalization(node: Node) -> bool:
    return operator_name(node) in NORMALIZATIONS
