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
from typing import Final, TypeGuard

import torch
from torch.fx import Graph, GraphModule, Node

from delegraph.aot.edge.patterns import ANY, Bindings, Capture, matches, op
from delegraph.aot.graph.bodies import referenced
from delegraph.aot.quantize.annotations import is_written
from delegraph.aot.quantize.weights.layer_weights import channel_dim
from delegraph.aot.quantize.weights.names import add_constant

__all__ = ["fold_norms", "is_over_channels", "join_norms", "part_norms"]

aten = torch.ops.aten

_APART: Final = "delegraph.apart"
"""The key in the meta of an alias that stands before a batch norm."""


def _is_constant(value: object) -> TypeGuard[Node]:
    return isinstance(value, Node) and value.op == "get_attr" and not is_written(value)


def _is_optional(value: object) -> bool:
    return value is None or _is_constant(value)


# z = batch_norm(layer(x, w, b), gamma, beta, mean, var, training=False, …, eps), all of them constants
_WEIGHT, _MEAN, _VARIANCE = (Capture(name, _is_constant) for name in ("weight", "mean", "variance"))
_BIAS, _GAMMA, _BETA = (Capture(name, _is_optional) for name in ("bias", "gamma", "beta"))
_CONVOLUTIONS = (aten.conv1d, aten.conv2d, aten.conv3d, aten.conv_transpose1d)
_LAYER = op((*_CONVOLUTIONS, aten.conv_transpose2d, aten.conv_transpose3d, aten.linear), ANY, _WEIGHT, _BIAS)
_NORM = op(aten.batch_norm, _LAYER, _GAMMA, _BETA, _MEAN, _VARIANCE, False, ANY, Capture("eps"))


def fold_norms(module: GraphModule) -> dict[str, str]:
    """Edit `module`; by the name of each layer that has become what a norm behind it gave, that of this norm."""
    become: dict[str, str] = {}
    for norm in _batch_norms(module.graph):
        match = next(matches(_NORM, norm), None) if norm.users else None
        layers = [] if match is None else _readers(match)
        # whoever reads the weight gets the folded one, so that it has to have this norm behind it as well
        if match is None or not all(_is_normed(layer, match) for layer in layers):
            continue
        _fold(module, layers, match)
        for layer in layers:
            (behind,) = layer.users
            behind.replace_all_uses_with(layer)
            become[layer.name] = behind.name
            module.graph.erase_node(behind)
    module.recompile()
    return become


def part_norms(
    module: GraphModule, filter_fn: Callable[[GraphModule, Node, Node], bool] = lambda module, layer, norm: True
) -> None:
    """Put an alias between each layer and the norm behind it that `filter_fn` accepts, until `join_norms`."""
    graph = module.graph
    for norm in _batch_norms(graph):
        layer = norm.args[0]
        assert isinstance(layer, Node)
        # torchao looks for norms right behind a layer
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


def _readers(match: Bindings) -> list[Node]:
    """All that read the weight or the bias."""
    operands = [match[name] for name in ("weight", "bias") if match[name] is not None]
    return list(dict.fromkeys(user for operand in operands for user in operand.users))


def _is_normed(layer: Node, match: Bindings) -> bool:
    """Whether `layer` is one of the same kind, and has a norm of the same numbers for its one reader."""
    if layer.target is not match.calls[_LAYER].target or layer.kwargs or len(layer.users) > 1:
        return False
    # with the captures of the first match bound, another one has the same weight, bias and numbers
    alike = [own for user in layer.users for own in matches(_NORM, user, Bindings(captures=match.captures))]
    return any(own.calls[_LAYER] is layer and is_over_channels(layer, own.calls[_NORM]) for own in alike)


def is_over_channels(layer: Node, norm: Node) -> bool:
    """Whether what the norm takes for channels, dim 1, is what the layer's weights are for: of a linear layer with
    two dims, and of convolutions with a batch."""
    value, weight = layer.meta["val"], layer.args[1].meta["val"]  # type: ignore[union-attr]  # a weight is a value
    return bool(value.ndim == weight.ndim and norm.meta["val"].ndim == value.ndim)


def _fold(module: GraphModule, layers: Sequence[Node], match: Bindings) -> None:
    """Put the numbers of a norm into the weight and the bias of `layers`."""
    weight, bias, layer = match["weight"], match["bias"], layers[0]
    tensor: torch.Tensor = referenced(module, weight)
    mean, variance = (_number(module, match[name], 0) for name in ("mean", "variance"))
    gamma, beta, shift = (_number(module, *pair) for pair in ((match["gamma"], 1), (match["beta"], 0), (bias, 0)))
    scale = gamma / torch.sqrt(variance + float(match["eps"]))
    _put(module, weight, (tensor.detach().double() * _by_channel(scale, layer)).to(tensor.dtype))
    folded = ((shift - mean) * scale + beta).to(tensor.dtype)
    if bias is not None:
        _put(module, bias, folded)
        return
    # the norm gives a layer without a bias one, which all that share the weight read
    path = str(weight.target).rpartition(".")[0]
    name = add_constant(module, f"{path}.bias" if path else "bias", torch.nn.Parameter(folded, requires_grad=False))
    with module.graph.inserting_after(weight):
        bias = module.graph.get_attr(name)
    bias.meta["val"] = weight.meta["val"].new_empty(folded.shape)
    for reader in layers:
        reader.args = (*reader.args[:2], bias, *reader.args[3:])


def _number(module: GraphModule, argument: Node | None, otherwise: float) -> torch.Tensor:
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
