"""A module, recipes for its calls -> the same module, the weights of these calls stored in 8 or 4 bits.

    before                    after
        y = linear(x, w, b)       w' = dequantized_weight(w_packed, w_scales)
                                  y  = linear(x, w', b)
        e = embedding(w, i)       e  = gathered_rows(i, w_int8, w_int8_scales)
        p = linear(x, w.T, b)     w' = dequantized_weight(w_int8, w_int8_scales)
                                  p  = linear(x, w', b)          its rows are the columns of w
        m = grouped_mm(x, w.mT)   w' = dequantized_weight(w_int8, w_int8_scales).view(experts, outputs, inputs)
                                  m  = grouped_mm(x, w'.mT)

Rows of an embedding meet no values in a product, and what an expert of a mixture multiplies no quantizer annotates:
recipes for values store them, too. A weight is stored once however many calls read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch.fx import GraphModule, Node

from delegraph.aot.graph.bodies import referenced
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.quantize.annotations import is_written
from delegraph.aot.quantize.recipes import Recipe
from delegraph.aot.quantize.weights.layer_weights import EXPERTS, is_layer, transposed_source, weights_of
from delegraph.aot.quantize.weights.names import add_constant
from delegraph.aot.quantize.weights.packing import pack, quantize_rows
from delegraph.aot.quantize.weights.stored_weights import TABLES, StoredParameter, gather_rows

__all__ = ["StoredWeights", "store_weights", "stored_bits"]

_MATRICES: Final = frozenset({"aten::linear", *EXPERTS})
"""Layers whose weight may be the transposed one of the model's."""

_FOUR_BITS: Final = _MATRICES | TABLES.keys()
"""Layers whose weights are matrices, packed where they may be."""

_BY_ANY_RECIPE: Final = EXPERTS | TABLES.keys()
"""Layers that no quantizer annotates: recipes for values store them, too."""

_READS: Final[Mapping[str, str]] = {
    "quantized_decomposed::dequantize_per_tensor": "quantize_per_tensor",
    "quantized_decomposed::dequantize_per_channel": "quantize_per_channel",
}
"""The calls by which layers read their stored weights, and the quantize call that each undoes."""


@dataclass(frozen=True, slots=True)
class _Weight:
    """A weight as `layer` reads it: its argument, and the parameter or buffer that this is, or is transposed from."""

    layer: Node
    argument: Node
    source: Node

    def rows(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor`, the source's, as it is stored: rows of the elements that are summed; of experts the rows of all of
        them, one after the other."""
        if operator_name(self.layer) not in _MATRICES:
            return tensor
        # experts are (…, inputs, outputs): seen by rows if it is the source that is (…, outputs, inputs)
        is_turned = (self.source is not self.argument) != (operator_name(self.layer) in EXPERTS)
        by_rows = tensor.mT if is_turned else tensor
        return by_rows.reshape(-1, by_rows.shape[-1])

    def read_from(self, module: GraphModule, stored: StoredParameter) -> None:
        """Let the layer read the stored constants."""
        graph = module.graph
        with graph.inserting_before(self.layer):
            weight = stored.read(graph)
            weight.meta = {**self.source.meta, "nn_module_stack": self.layer.meta.get("nn_module_stack")}
            if operator_name(self.layer) in EXPERTS:
                *experts, inputs, outputs = self.argument.meta["val"].shape
                by_rows = graph.call_method("view", (weight, *experts, outputs, inputs))
                weight = graph.call_method("transpose", (by_rows, -1, -2))
        self.layer.replace_input_with(self.argument, weight)


class StoredWeights:
    """The codes and scales stored of each weight, so that a weight of several methods, or one that is quantized again
    with other layers left out, is rounded once. It keeps the weights alive: their address is the key."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = {}

    def of(self, weight: torch.Tensor, bits: int, group: int) -> tuple[torch.Tensor, torch.Tensor]:
        """int8 of the shape of `weight`, or uint8 with two codes in each, and the scales, one for each `group`."""
        place = weight.untyped_storage().data_ptr(), weight.storage_offset(), weight.shape, weight.stride()
        key = (*place, weight.dtype, bits, group)
        if key not in self._made:
            codes, scales = quantize_rows(weight.reshape(-1, group), bits)
            codes = codes.view(weight.shape)
            self._made[key] = weight, pack(codes) if bits == 4 else codes, scales
        _, stored, scales = self._made[key]
        return stored, scales


def store_weights(module: GraphModule, recipes: Mapping[str, Recipe], before: StoredWeights | None = None) -> None:
    """Edit `module`: `recipes` are by the names of calls. Other calls, and weights that change, stay as they are.
    Weights that were stored `before` are taken from there, and new ones added to it."""
    before = before or StoredWeights()
    stored: dict[tuple[object, ...], StoredParameter] = {}
    for node in list(module.graph.nodes):
        bits = stored_bits(node, recipes.get(node.name))
        for weight in _weights(node) if bits else ():
            name, tensor = str(weight.source.target), weight.rows(referenced(module, weight.source))
            group = _group_size(tensor, bits, recipes[node.name].group_size)
            key = (name, tensor.shape, tensor.stride(), bits, group)
            if key not in stored:
                # a table of tokens that is the output layer's weight too: torchao has stored it already
                tied = _tied(module, name, tensor) if operator_name(node) in TABLES else None
                constants = (*before.of(tensor, bits, group), None)
                stored[key] = tied or StoredParameter.add(module, name, constants, tensor.shape, tensor.dtype)
            weight.read_from(module, stored[key])
    gather_rows(module)
    module.graph.eliminate_dead_code()
    module.recompile()


def stored_bits(node: Node, recipe: Recipe | None) -> int:
    """In how many bits each weight of a call is stored: 0 where it stays float."""
    name = operator_name(node)
    if recipe is None or not recipe.weight_bits or not is_layer(node):
        return 0
    if not (recipe.weight_only or recipe.weight_bits == 4 or name in _BY_ANY_RECIPE):
        return 0
    weights = _weights(node)
    if not weights:
        return 0
    width = weights[0].rows(weights[0].source.meta["val"]).shape[-1]
    fits = name in _FOUR_BITS and width % 2 == 0 and width % (recipe.group_size or width) == 0
    return recipe.weight_bits if fits else 8


def _weights(node: Node) -> list[_Weight]:
    """The matrices of floats, and filters, that a layer reads, if they are the model's and no run changes them."""
    may_be_turned = operator_name(node) in _MATRICES
    read = [_Weight(node, own, (may_be_turned and transposed_source(own)) or own) for own in weights_of(node)]
    return [weight for weight in read if _is_matrix(weight.source) and not is_written(weight.source)]


def _is_matrix(source: Node) -> bool:
    tensor = source.meta.get("val") if source.op == "get_attr" else None
    return isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.ndim > 1


def _group_size(weight: torch.Tensor, bits: int, asked: int) -> int:
    row = weight[0].numel()
    return asked if asked and weight.ndim == 2 and row % asked == 0 else row


def _tied(module: GraphModule, name: str, table: torch.Tensor) -> StoredParameter | None:
    """The codes and scales of a layer that has `table` as its weight too, with a scale for each row, or one for all of
    it: with others the bytes would be there twice."""
    for node in module.graph.nodes:
        undone = _READS.get(operator_name(node))
        if undone is None or node.args[0].op != "get_attr":
            continue
        codes, *parameters = (referenced(module, arg) if isinstance(arg, Node) else arg for arg in node.args)
        scales, zero_points, axis, *_ = parameters
        by_column = isinstance(scales, torch.Tensor) and axis != 0
        if (codes.shape, codes.dtype) != (table.shape, torch.int8) or by_column or torch.as_tensor(zero_points).any():
            continue
        quantize = getattr(torch.ops.quantized_decomposed, undone).default
        # quantized alike, the same codes: it is the same weight
        if torch.equal(quantize(table.detach().float(), *parameters), codes):
            known = str(node.args[1].target) if isinstance(node.args[1], Node) else None
            named = known or add_constant(module, f"{name}_int8_scales", torch.tensor([scales], dtype=torch.float32))
            return StoredParameter((str(node.args[0].target), named, None), table.shape, table.dtype)
    return None
