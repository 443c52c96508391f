"""Batch norm of a model that trains with rounding: its numbers, which torchao loses, and the convolution it becomes.

For training torchao puts its own in the place of that behind a convolution, which it scales, and divides the result
(`torchao/quantization/pt2e/qat_utils.py`, `_get_qat_conv_bn_pattern`):

    y = batch_norm(conv(x, round(w * s)) / s + b)        s = gamma / sqrt(running_var + eps)

with eps 1e-5 and momentum 0.1, whatever they were. Without a gamma, with one of 0, or with channels of groups, that
fails or gives NaN: such norms are hidden from it (`is_misjudged`) and stay behind the convolution. After training the
scaled one is folded into conv(x, round(w * s), b'), where b' is the calls behind the convolution applied to zeros.
torchao would find it by exporting a hundred patterns, which takes a quarter of a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import Argument

from delegraph.aot.edge.patterns import ANY, Bindings, Capture, either, matches, op
from delegraph.aot.quantize.annotations import is_weight
from delegraph.aot.quantize.rewrites.norm_folding import is_over_channels
from delegraph.aot.quantize.weights.computed_weights import constant_value
from delegraph.aot.quantize.weights.layer_weights import channel_dim
from delegraph.aot.quantize.weights.names import add_constant

__all__ = ["fold_batch_norms", "hidden_batch_norms", "is_misjudged", "remember_numbers", "restore_numbers"]

aten = torch.ops.aten

_NUMBERS: Final = "delegraph.batch_norm"
"""Where a call's meta holds its arguments from `_TRAINS` on, which torchao's own call in its place gets as well."""

_VARIANCE, _TRAINS = 4, 5
"""Which arguments of `aten::batch_norm` these are; behind them momentum, eps and whether cuDNN may do it."""

_CONVOLUTIONS: Final = frozenset(
    {aten.conv1d.default, aten.conv2d.default, aten.conv_transpose1d.default, aten.conv_transpose2d.input}
)
"""Convolutions whose weights torchao scales."""

# torchao has made of a convolution and a norm, where s is gamma / sqrt(running_var + eps):
# z = batch_norm(conv(x, round(w * s.reshape(…))) / s.reshape(…) + b)
_SCALE = op((aten.reshape, aten.view), Capture("scale"))
_CONVOLUTION = op(tuple(_CONVOLUTIONS), ANY, Capture("weight"))
_QUOTIENT = op(aten.div.Tensor, _CONVOLUTION, _SCALE)
_NORM = op(aten.batch_norm.default, either(_QUOTIENT, op(aten.add.Tensor, _QUOTIENT, ANY)))
_WEIGHT = op(aten.mul.Tensor, ANY, _SCALE)


def is_misjudged(module: GraphModule, convolution: Node, norm: Node) -> bool:
    """Whether torchao would scale the convolution because of `norm`, and wrongly: it lacks numbers, has a gamma of 0,
    which is divided by, or a dtype that is not the patterns', float32; or the channels of the weight are of groups."""
    if convolution.target not in _CONVOLUTIONS:
        return False
    numbers, weight = norm.args[1:_TRAINS], convolution.args[1].meta["val"]  # type: ignore[union-attr]  # a value
    if not all(map(is_weight, numbers)) or not is_over_channels(convolution, norm):
        return True
    in_one_dim = weight.shape[channel_dim(convolution)] == norm.meta["val"].shape[1]
    return not in_one_dim or weight.dtype != torch.float32 or not constant_value(module, norm.args[1]).all()  # type: ignore[arg-type]


def remember_numbers(graph: Graph) -> None:
    """Note the numbers of each batch norm in its meta, before torchao edits `graph`."""
    for norm in _batch_norms(graph):
        norm.meta[_NUMBERS] = norm.args[_TRAINS:]


def restore_numbers(graph: Graph) -> None:
    """Give each batch norm its numbers again, and the scale of the convolution before it."""
    for norm in _batch_norms(graph):
        if _NUMBERS not in norm.meta:  # a quantizer's own
            continue
        norm.args = (*norm.args[:_TRAINS], *norm.meta[_NUMBERS])
        _, _, eps, *_ = norm.meta[_NUMBERS]
        if _scaled_convolution(norm) is not None:
            variance = norm.args[_VARIANCE]
            assert isinstance(variance, Node)
            # the scale is made with torchao's eps, too
            for shifted in [user for user in variance.users if user.target is aten.add.Tensor]:
                shifted.args = (variance, eps)


def fold_batch_norms(module: GraphModule) -> None:
    """Edit the trained `module`, which is in eval mode: what torchao has scaled becomes a convolution and no more."""
    for norm in _batch_norms(module.graph):
        convolution = _scaled_convolution(norm)
        if convolution is not None:
            _fold(module, convolution, norm)
    module.graph.eliminate_dead_code()
    module.recompile()


@contextmanager
def hidden_batch_norms(graph: Graph) -> Iterator[None]:
    """For that time batch norms go by another name, so that torchao does not export patterns to look for them."""
    norms = _batch_norms(graph)
    for norm in norms:
        norm.target = aten.batch_norm
    yield
    for norm in norms:
        norm.target = aten.batch_norm.default


def _batch_norms(graph: Graph) -> list[Node]:
    return list(graph.find_nodes(op="call_function", target=aten.batch_norm.default))


def _scaled_convolution(norm: Node) -> Node | None:
    """The convolution that torchao has scaled because of `norm`: it is divided by what its weight was multiplied by."""
    for match in matches(_NORM, norm):
        if any(matches(_WEIGHT, _unrounded(match["weight"]), Bindings(captures={"scale": match["scale"]}))):
            return match.calls[_CONVOLUTION]
    return None


def _fold(module: GraphModule, convolution: Node, norm: Node) -> None:
    args: list[Argument] = [*convolution.args, None][: max(3, len(convolution.args))]
    weight = _unrounded(args[1])
    folded = constant_value(module, weight)
    # the bias is what the calls behind the convolution make of zeros
    zeros = folded.new_zeros(1, norm.meta["val"].shape[1], *[1] * (folded.ndim - 2))
    bias = constant_value(module, norm, {convolution: zeros}).flatten()
    parameter = weight.args[0]
    assert isinstance(parameter, Node)
    path = str(parameter.target).rpartition(".")[0]
    # in front of all, for a module that rounds the weight is called before the convolution
    with module.graph.inserting_before(next(iter(module.graph.nodes))):
        constants = [
            module.graph.get_attr(add_constant(module, f"{path}.{name}" if path else name, tensor))
            for name, tensor in (("folded_weight", folded), ("folded_bias", bias))
        ]
    for position, constant in zip((1, 2), constants, strict=True):
        rounded = args[position]
        if isinstance(rounded, Node) and rounded.op == "call_module":
            rounded.args = (constant,)
        else:
            args[position] = constant
    convolution.args = tuple(args)
    norm.replace_all_uses_with(convolution)
    module.graph.erase_node(norm)


def _unrounded(value: Argument) -> Node:
    """The value that is rounded before a call takes it (torchao calls a module to round it), or `value` itself."""
    assert isinstance(value, Node)
    return _unrounded(value.args[0]) if value.op == "call_module" else value
