"""A quantized module -> what stays float although its recipe is another one, and why: layers' weights, and values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import torch
from torch.fx import GraphModule, Node

from delegraph.aot.graph.bodies import graph_modules, referenced
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.module_stack import module_path
from delegraph.aot.quantize.annotations import ancestors, is_float_tensor, is_weight
from delegraph.aot.quantize.measurement.report import FloatLayer
from delegraph.aot.quantize.recipes import Recipe
from delegraph.aot.quantize.weights.layer_weights import is_layer, weights_of

__all__ = ["float_layers"]

_GIVEN: Final = "a body of control flow is given its weight, which is computed outside of it, or changes"
_CHANGES: Final = "its weight may be another one in each run"
_COMPUTED: Final = "its weight is computed, from what is smaller or is read elsewhere too: stored, it would take more"
_SUMMED: Final = "it sums products of its weight in a way that is no layer's"
_LEFT: Final = "no quantizer annotates it"


def float_layers(
    module: GraphModule, recipe_of: Callable[[Node], Recipe], kept: Collection[str], left: Mapping[str, str]
) -> tuple[FloatLayer, ...]:
    """The float layers of `module` and of the bodies in it, without those that are `kept` by name. `left` has the
    quantizers' reasons for the calls that they have not annotated, by name."""
    layers = []
    for path, part in graph_modules(module):
        for node in part.graph.nodes:
            if node.name in kept or node.op != "call_function" or recipe_of(node).is_float:
                continue
            reason = None
            if is_layer(node):
                reason = _reason(part, node, recipe_of(node), in_body=bool(path))
                reason = left.get(node.name, _LEFT) if reason is _LEFT else reason
            elif node.target is torch.ops.aten.einsum.default and _sums_a_weight(node):
                reason = _SUMMED
            elif not (recipe_of(node).dynamic or recipe_of(node).weight_only):
                reason = left.get(node.name)
            if reason is not None:
                layers.append(FloatLayer(node.name, operator_name(node), module_path(node), reason))
    return tuple(layers)


def _sums_a_weight(einsum: Node) -> bool:
    operands = einsum.args[1]
    assert isinstance(operands, list | tuple)
    weights = [arg for arg in operands if is_float_tensor(arg) and is_weight(arg) and arg.meta["val"].ndim > 1]
    return 0 < len(weights) < len(operands)


def _reason(part: GraphModule, node: Node, recipe: Recipe, *, in_body: bool) -> str | None:
    """Why the weights of a layer are float; None if they are not, or are values: a body may be given its weights."""
    weights = [weight for weight in weights_of(node) if "val" not in weight.meta or weight.meta["val"].ndim > 1]
    sources = [source for source in ancestors(weights) if not source.all_input_nodes]
    is_passed = in_body and any(weight.op == "placeholder" for weight in weights)
    if any(source.op == "placeholder" for source in sources) and not is_passed:
        return None
    stored = [referenced(part, source) for source in sources if source.op == "get_attr"]
    if any(isinstance(tensor, torch.Tensor) and tensor.ndim and not tensor.is_floating_point() for tensor in stored):
        return None  # it is stored as integers
    if is_passed:
        return _GIVEN
    if not all(map(is_weight, weights)):
        return _CHANGES
    stored_here = recipe.weight_only or recipe.weight_bits == 4
    return _COMPUTED if stored_here and any(weight.op != "get_attr" for weight in weights) else _LEFT
