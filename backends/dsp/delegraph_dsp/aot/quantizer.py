"""ATen program -> annotations of the calls that `DspBackend` computes on codes: the quantizer that users name "dsp".

Every operator with an integer kernel gets its inputs and its result quantized; an operator that only moves elements
keeps the grid of its input; weights of products have a scale for each row; those of norms, and biases, stay float,
since the compiler knows them. The result of softmax has a grid of its own, parts of 32768, and residual sums that are
normalized are int16, which norms and products read directly. The table of an embedding has one scale, which is also its
result's. An attention without a mask is first cut into products and a softmax, so that each gets its grids.
"""

from __future__ import annotations

from collections.abc import Mapping
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
    cut_attention,
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
from delegraph.aot.authoring import operator_name
from delegraph.errors import LoweringError
from delegraph.interfaces import Quantizer
from delegraph_machines.fixed_point import not_interpolated

__all__ = ["DspQuantizer", "dsp_quantizer"]

aten = torch.ops.aten

TABLES: Final = frozenset(
    {
        *(aten.gelu.default, aten.silu.default, aten.sigmoid.default, aten.tanh.default, aten.exp.default),
        *(aten.log.default, aten.hardswish.default, aten.hardsigmoid.default, aten.elu.default, aten.softplus.default),
        *(aten.mish.default, aten.sqrt.default, aten.rsqrt.default, aten.erf.default, aten.sin.default),
        *(aten.cos.default,),
    }
)
NORMS: Final = frozenset({aten.layer_norm.default, aten.rms_norm.default})
ROWS: Final = NORMS | {
    *(aten.mean.dim, aten.sum.dim_IntList, aten.amax.default, aten.amin.default, aten.upsample_bilinear2d.vec)
}
PAIRS: Final = frozenset(
    {aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.matmul.default, aten.bmm.default, aten.mm.default}
)
SCALINGS: Final = frozenset({aten.mul.Tensor, aten.div.Tensor, aten.mul.Scalar, aten.div.Scalar})
"""Operators that also take a number."""
CLAMPS: Final = frozenset({aten.relu.default, aten.relu6.default, aten.hardtanh.default, aten.clamp.default})
SOFTMAXES: Final = frozenset({aten.softmax.int, aten._softmax.default})
JOINS: Final = frozenset({aten.cat.default})
MOVES: Final = VALUE_MOVES | {aten.constant_pad_nd.default, aten.pad.default, aten.upsample_nearest2d.vec}
"""Operators that are applied to the codes themselves, whatever their grid."""


def dsp_quantizer(*, recipe: str | Recipe = "int8") -> Quantizer:
    """A quantizer for `DspBackend`, for "int8", "int8_per_tensor", "int16x8" with their options, or a recipe like them.

    Raises what `recipe_named` raises, and `LoweringError` for a recipe whose grids are not known ahead of time.
    """
    resolved = recipe_named(recipe)
    if resolved.activation_bits is None or resolved.weight_bits != 8 or resolved.dynamic:
        raise LoweringError(
            "quantizer 'dsp' annotates values whose ranges data show, in 'int8', 'int8_per_tensor' or 'int16x8'; recipe"
            f" {resolved.name!r} has none"
        )
    return DspQuantizer(resolved)


class DspQuantizer:
    """torchao's `Quantizer`, in all methods that torchao calls, for a recipe; see `dsp_quantizer`."""

    def __init__(self, recipe: Recipe) -> None:
        self._bits = recipe.activation_bits
        self._activation, self._weight = activation_spec(recipe), weight_spec(recipe)
        self._wide = activation_spec(replace(recipe, activation_bits=16))
        self._probabilities = _between_0_and_1()
        self._sums: frozenset[Node] = frozenset()

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Cut attentions into calls with integer kernels; those with a mask stay whole, in float."""
        cut_attention(model, masked=False)
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate calls with an integer kernel; a node that has an annotation keeps it."""
        self._sums = normalized_sums(model)
        for node in model.graph.nodes:
            if node.op == "call_function" and annotation_of(node) is None and _is_float(node):
                self._annotate(node)
        return model

    def validate(self, model: GraphModule) -> None:
        """No check is needed: all that `annotate` writes has a kernel."""

    def reason(self, node: Node) -> str | None:
        """The reason why the quantizer leaves a call of floats."""
        if node.target in TABLES and not self._has_table(node):
            return f"an int16 table does not give {operator_name(node)}"
        if node.target in MOVES:
            return float_operand(node)
        if node.target in PAIRS | SCALINGS:
            return "one of its operands is neither a tensor of float32 nor a number that it scales by"
        return f"the DSP has no kernel of integers for {operator_name(node)}"

    def _annotate(self, node: Node) -> None:
        sources = list(filter(_is_float, operands_of(node)))
        if node.target == aten.linear.default and is_weight(node.args[1]):
            self._put(node, {node.args[0]: self._activation, node.args[1]: self._weight})
        elif (node.target in PAIRS and len(sources) == _operands(node)) or (
            node.target in SCALINGS and len(sources) == 1 and isinstance(node.args[1], int | float)
        ):
            self._put(node, {source: self._read(node, source) for source in sources})
        elif node.target == aten.embedding.default and is_weight(node.args[0]):
            annotate(node, {node.args[0]: self._activation}, shared_spec((node.args[0], node)))
        elif node.target in ROWS or (node.target in TABLES and self._has_table(node)):
            self._put(node, {sources[0]: self._read(node, sources[0])})
        elif node.target in SOFTMAXES:
            annotate(node, {sources[0]: self._activation}, self._probabilities)
        elif _is_clamp(node):
            self._put(node, {sources[0]: self._activation})
        elif node.target in MOVES and is_quantized(sources[0]):
            shared = shared_spec(sources[0])
            annotate(node, {sources[0]: shared}, shared)
        elif node.target in JOINS:
            operands = {source: self._read(node, source) for source in sources}
            annotate(node, *joined_specs(node, operands, self._made(node)))

    def _put(self, node: Node, inputs: Mapping[Any, Any]) -> None:
        """Annotate the inputs, and the result, or that of an activation which is its only reader."""
        fused = [] if node.target in CLAMPS else fused_calls(node, _is_clamp)
        annotate(node, inputs, self._activation if fused else self._made(node), fused)

    def _read(self, node: Node, source: Node) -> Any:
        """The spec with which `node` reads `source`: normalized sums and probabilities keep theirs."""
        if source.target in SOFTMAXES:
            return self._probabilities
        return self._wide if node in self._sums or (node.target in NORMS and source in self._sums) else self._activation

    def _made(self, node: Node) -> Any:
        """The spec of the result of `node`; a linear layer that only a sum reads has the sum's."""
        summed = node.target == aten.linear.default and len(node.users) == 1 and self._sums.issuperset(node.users)
        return self._wide if summed or node in self._sums else self._activation

    def _has_table(self, node: Node) -> bool:
        """Whether a table computes `node`: int16 tables, whose grids include 0, interpolate."""
        name = operator_name(node).removeprefix("aten::")
        return self._bits != 16 or not_interpolated(name, 0.0, 0.0) is None


def _between_0_and_1() -> Any:
    """The 32768 codes that int16 has from 0 on: of a thousand probabilities, most are below 1 / 256."""
    from torchao.quantization.pt2e.quantizer import FixedQParamsQuantizationSpec

    return FixedQParamsQuantizationSpec(torch.int16, 1 / 32768, 0, -32767, 32767, torch.per_tensor_symmetric)


# ---- the graph ----------------------------------------------------------------------------------------------------


def _operands(node: Node) -> int:
    """The number of different tensors among two operands."""
    return len(dict.fromkeys(node.args[:2]))


def _is_float(value: object) -> TypeGuard[Node]:
    """Whether `value` is a tensor of float32, the only float dtype with kernels."""
    return is_float_tensor(value, {torch.float32})


def _is_clamp(node: Node) -> bool:
    """Whether `node` limits its input to numbers."""
    return node.target in CLAMPS and not any(isinstance(limit, Node) for limit in node.args[1:])
