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
recipes for values store them, too. A weight is stored once however many calls read it. The graph calls `packing.py`'s
functions, which the export that comes next turns into operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from delegraph.aot.graph.bodies import referenced
from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.graph.schema_binding import schema_arguments
from delegraph.aot.quantize.annotations import is_written
from delegraph.aot.quantize.recipes import Recipe
from delegraph.aot.quantize.weights.layer_weights import EXPERTS, WEIGHTS, is_layer, transposed_source
from delegraph.aot.quantize.weights.names import add_constant
from delegraph.aot.quantize.weights.packing import bags_of_rows, dequantized_weight, gathered_rows, pack, quantize_rows

__all__ = ["StoredWeights", "store_weights", "stored_bits"]

aten = torch.ops.aten

_TABLES: Final[Mapping[str, Callable[..., Any]]] = {
    "aten::embedding": gathered_rows,
    "aten::embedding_bag.padding_idx": bags_of_rows,
}
"""Layers that read some rows of their weight, and what does that with stored ones: no values meet them in a product."""

_FOUR_BITS: Final = frozenset({"aten::linear", *_TABLES, *EXPERTS})
"""Layers whose weights are matrices, packed where they may be."""

_MATRICES: Final = frozenset({"aten::linear", *EXPERTS})
"""Layers whose weight may be the transposed one of the model's."""

_BY_ANY_RECIPE: Final = frozenset({*_TABLES, *EXPERTS})
"""Layers that no quantizer annotates: recipes for values store them, too."""


_READS: Final[Mapping[str, str]] = {
    "quantized_decomposed::dequantize_per_tensor": "quantize_per_tensor",
    "quantized_decomposed::dequantize_per_channel": "quantize_per_channel",
}
"""The calls by which layers read their stored weights, and the quantize call that each undoes."""


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
    stored: dict[tuple[object, ...], tuple[str, ...]] = {}
    for node in list(module.graph.nodes):
        bits = stored_bits(node, recipes.get(node.name))
        for weight in _weights(node) if bits else ():
            tensor = _matrix(node, referenced(module, weight))
            group = _group_size(tensor, bits, recipes[node.name].group_size)
            key = (str(weight.target), tensor.shape, tensor.stride(), bits, group)
            if key not in stored:
                # a table of tokens that is the output layer's weight too: torchao has stored it already
                tied = _tied(module, str(weight.target), tensor) if operator_name(node) in _TABLES else None
                stored[key] = tied or _add(module, str(weight.target), bits, *before.of(tensor, bits, group))
            _read(module, node, weight, stored[key], tensor)
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
    width = _matrix(node, weights[0].meta["val"]).shape[-1]
    fits = name in _FOUR_BITS and width % 2 == 0 and width % (recipe.group_size or width) == 0
    return recipe.weight_bits if fits else 8


def _weights(node: Node) -> list[Node]:
    """The matrices of floats, and filters, that a layer reads, if they are the model's and no run changes them."""
    argument = _given(node)
    operands = argument if isinstance(argument, list | tuple) else [_source(node) or argument]
    nodes = [weight for weight in operands if isinstance(weight, Node)]
    return [weight for weight in nodes if weight.op == "get_attr" and _is_matrix(weight) and not is_written(weight)]


def _given(node: Node) -> Any:
    """The argument of a layer that is its weight, or a list of weights."""
    return node.args[WEIGHTS[operator_name(node)].argument]


def _source(node: Node) -> Node | None:
    """The parameter that the weight of a linear layer, or of experts, is transposed from; None of another layer."""
    return transposed_source(_given(node)) if operator_name(node) in _MATRICES else None


def _matrix(node: Node, weight: torch.Tensor) -> torch.Tensor:
    """The weight that `node` reads as it is stored: rows of the elements that are summed; of experts the rows of all of
    them, one after the other."""
    if operator_name(node) not in _MATRICES:
        return weight
    seen = weight if _source(node) is None else weight.mT
    by_rows = seen.mT if operator_name(node) in EXPERTS else seen
    return by_rows.reshape(-1, by_rows.shape[-1])


def _is_matrix(weight: Node) -> bool:
    tensor = weight.meta.get("val")
    return isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.ndim > 1


def _group_size(weight: torch.Tensor, bits: int, asked: int) -> int:
    row = weight[0].numel()
    return asked if asked and weight.ndim == 2 and row % asked == 0 else row


def _tied(module: GraphModule, name: str, table: torch.Tensor) -> tuple[str, ...] | None:
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
            if isinstance(node.args[1], Node):
                return str(node.args[0].target), str(node.args[1].target)
            scale = torch.tensor([scales], dtype=torch.float32)
            return str(node.args[0].target), add_constant(module, f"{name}_int8_scales", scale)
    return None


def _add(module: GraphModule, name: str, bits: int, stored: torch.Tensor, scales: torch.Tensor) -> tuple[str, ...]:
    """Add the constants to `module`; their names."""
    kind = "packed" if bits == 4 else "int8"
    return add_constant(module, f"{name}_{kind}", stored), add_constant(module, f"{name}_{kind}_scales", scales)


def _rows_and_groups(module: GraphModule, scales: str, table: torch.Tensor) -> tuple[int, int]:
    count = module.get_buffer(scales).numel()
    return (1, 1) if count < len(table) else (len(table), count // len(table))


def _read(module: GraphModule, node: Node, weight: Node, names: tuple[str, ...], tensor: torch.Tensor) -> None:
    """Let `node` read the stored constants instead of `weight`."""
    graph = module.graph
    with graph.inserting_before(node):
        stored, scales = (graph.get_attr(name) for name in names)
        name = operator_name(node)
        if name in _TABLES:
            by_row = graph.call_method("view", (scales, *_rows_and_groups(module, names[1], tensor)))
            _, indices, *rest = schema_arguments(node)
            settings = rest if name == "aten::embedding_bag.padding_idx" else ()
            node.args = (indices, stored, by_row, None, tensor.dtype, *settings)
            node.target, node.kwargs = _TABLES[name], {}  # the same call by name, which what is measured goes by
            return
        dtype = tensor.dtype
        dequantized = graph.call_function(dequantized_weight, (stored, scales, None, list(tensor.shape), dtype))
        dequantized.meta = {**weight.meta, "nn_module_stack": node.meta.get("nn_module_stack")}
        if name in EXPERTS:
            *experts, inputs, outputs = _given(node).meta["val"].shape
            by_rows = graph.call_method("view", (dequantized, *experts, outputs, inputs))
            node.replace_input_with(_given(node), graph.call_method("transpose", (by_rows, -1, -2)))
            return
    node.replace_input_with(_given(node) if name in _MATRICES else weight, dequantized)
