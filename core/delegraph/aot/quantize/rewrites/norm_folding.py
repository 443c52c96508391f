"""A graph with batch norms behind layers -> the norms in the layers' weights, and which norm each layer has become.

    y = conv(x, w, b)                                 y = conv(x, w * s, (b - mean) * s + beta)
    z = batch_norm(y, gamma, beta, mean, var)         s = gamma / sqrt(var + eps)

A norm stays where others read the layer's result, or its weight or bias, and are not normalized alike:

    y = conv(x)                       before a ResNet's activation: the sum would get what is normalized
    z = y + conv2(relu(norm(y)))

or where its numbers are not the model's own: of the batch, or computed. torchao folds whatever stands behind a layer
(`torchao/quantization/pt2e/utils.py`, `_fuse_conv_bn_`), and of a weight that is read twice, or normalized twice, the
first norm alone: it gets to see none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule, Node

from delegraph.aot.graph.bodies import referenced
from delegraph.aot.quantize.annotations import is_written
from delegraph.aot.quantize.weights.layer_weights import channel_dim
from delegraph.aot.quantize.weights.names import add_constant

__all__ = ["fold_norms", "is_over_channels", "join_norms", "part_norms"]

aten = torch.ops.aten

_APART: Final = "delegraph.apart"
"""The key in the meta of an alias that stands before a batch norm."""

_TRAINS, _EPS = 5, 7
"""Which arguments of `aten::batch_norm` these are."""


def fold_norms(module: GraphModule) -> dict[str, str]:
    """Edit `module`; by the name of each layer that has become what a norm behind it gave, that of this norm."""
    become: dict[str, str] = {}
    for norm in _batch_norms(module.graph):
        layer = norm.args[0]
        layers = _normed_alike(layer, norm) if isinstance(layer, Node) and norm.users else []
        if layers:
            _fold(module, layers, norm)  # once: they share the weight
        for folded in layers:
            (behind,) = folded.users
            behind.replace_all_uses_with(folded)
            become[folded.name] = behind.name
            module.graph.erase_node(behind)
    module.recompile()
    return become


def part_norms(
    module: GraphModule, filter_fn: Callable[[GraphModule, Node, Node], bool] = lambda module, layer, norm: True
) -> None:
    """Put an alias between each layer and the norm behind it that `filter_fn` accepts, until `join_norms`."""
    graph = module.graph
    for norm in _batch_norms(graph):
        layer: Any = norm.args[0]
        if channel_dim(layer) is not None and filter_fn(module, layer, norm):
            with graph.inserting_before(norm):
                apart = graph.call_function(aten.alias.default, (layer,))
            apart.meta = {"val": layer.meta["val"], _APART: True}
            norm.replace_input_with(layer, apart)


def join_norms(module: GraphModule) -> None:
    """Take the aliases out again."""
    for apart in module.graph.find_nodes(op="call_function", target=aten.alias.default):
        if _APART in apart.meta:
            apart.replace_all_uses_with(apart.all_input_nodes[0])
            module.graph.erase_node(apart)
    module.recompile()


def _batch_norms(graph: Graph) -> list[Node]:
    return list(graph.find_nodes(op="call_function", target=aten.batch_norm.default))


def _normed_alike(layer: Node, norm: Node) -> list[Node]:
    """All layers with the weight and bias of `layer`, if a norm with the numbers of `norm` is the one reader of each;
    none if it is not, or if the numbers are no constants."""
    if channel_dim(layer) is None or layer.kwargs or norm.args[_TRAINS] or not is_over_channels(layer, norm):
        return []
    weight, bias, numbers = layer.args[1], _bias(layer), norm.args[1:5]
    operands = [operand for operand in (weight, bias, *numbers) if operand is not None]
    if None in numbers[2:] or not all(isinstance(operand, Node) and operand.op == "get_attr" for operand in operands):
        return []
    if any(is_written(operand) for operand in operands if isinstance(operand, Node)):
        return []
    layers = list(dict.fromkeys(user for value in (weight, bias) if isinstance(value, Node) for user in value.users))
    return layers if all(_is_alike(reader, layer, norm) for reader in layers) else []


def is_over_channels(layer: Node, norm: Node) -> bool:
    """Whether what the norm takes for channels, dim 1, is what the layer's weights are for: of a linear layer with
    two dims, and of convolutions with a batch."""
    value, weight = layer.meta["val"], layer.args[1].meta["val"]  # type: ignore[union-attr]  # a weight is a value
    return bool(value.ndim == weight.ndim and norm.meta["val"].ndim == value.ndim)


def _is_alike(reader: Node, layer: Node, norm: Node) -> bool:
    if reader.target is not layer.target or reader.kwargs:
        return False
    if reader.args[1] != layer.args[1] or _bias(reader) != _bias(layer):
        return False
    users = [*reader.users]
    return len(users) == 1 and users[0].target is norm.target and users[0].args == (reader, *norm.args[1:])


def _bias(layer: Node) -> Any:
    return layer.args[2] if len(layer.args) > 2 else None


def _fold(module: GraphModule, layers: Sequence[Node], norm: Node) -> None:
    """Put the numbers of `norm` into the weight and the bias of `layers`."""
    layer = layers[0]
    weight: Any = layer.args[1]
    bias, eps = _bias(layer), float(norm.args[_EPS])  # type: ignore[arg-type]  # a number
    tensor: torch.Tensor = referenced(module, weight)
    mean, variance = (_number(module, argument, 0) for argument in norm.args[3:5])
    gamma, beta, shift = (_number(module, *pair) for pair in ((norm.args[1], 1), (norm.args[2], 0), (bias, 0)))
    scale = gamma / torch.sqrt(variance + eps)
    _put(module, weight, (tensor.detach().double() * _by_channel(scale, layer)).to(tensor.dtype))
    folded = ((shift - mean) * scale + beta).to(tensor.dtype)
    if bias is not None:
        _put(module, bias, folded)
        return
    path = str(weight.target).rpartition(".")[0]
    name = add_constant(module, f"{path}.bias" if path else "bias", torch.nn.Parameter(folded, requires_grad=False))
    with module.graph.inserting_after(weight):
        bias = module.graph.get_attr(name)
    bias.meta["val"] = weight.meta["val"].new_empty(folded.shape)
    for reader in layers:
        reader.args = (*reader.args[:2], bias, *reader.args[3:])


def _number(module: GraphModule, argument: Any, otherwise: float) -> torch.Tensor:
    """The numbers that a norm or layer has for each channel, in float64."""
    if argument is None:
        return torch.tensor(otherwise, dtype=torch.float64)
    tensor: torch.Tensor = referenced(module, argument)
    return tensor.detach().double()


def _by_channel(scale: torch.Tensor, layer: Node) -> torch.Tensor:
    """The scales in the shape of the layer's weight: of a transposed convolution, (inputs, channels of a group, …)."""
    weight: torch.Tensor = layer.args[1].meta["val"]  # type: ignore[union-attr]  # a weight is a value
    ones = [1] * (weight.ndim - 2)
    if not channel_dim(layer):
        return scale.view(-1, 1, *ones)
    groups = scale.numel() // weight.shape[1]
    # (groups, channels of a group) -> a row for each input, those of its group's channels
    of_inputs = scale.view(groups, -1).repeat_interleave(weight.shape[0] // groups, 0)
    return of_inputs.view(weight.shape[0], -1, *ones)


def _put(module: GraphModule, node: Node, value: torch.Tensor) -> None:
    """Let the attribute of `module` that `node` reads be `value`: the model's own tensor stays as it is."""
    path, _, attribute = str(node.target).rpartition(".")
    owner = module.get_submodule(path)
    delattr(owner, attribute)
    owner.register_parameter(attribute, torch.nn.Parameter(value, requires_grad=False))
