"""A call -> where its weight is, and which dim of that are the channels of the result: the one table of such layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from torch.fx import Node

from delegraph.aot.graph.operator_names import operator_name
from delegraph.aot.quantize.annotations import is_float_tensor, is_weight

__all__ = ["EXPERTS", "WEIGHTS", "LayerWeight", "channel_dim", "is_layer", "transposed_source", "weights_of"]


@dataclass(frozen=True, slots=True)
class LayerWeight:
    """argument: which one it is; of a recurrent layer, a list of weights and biases. channels: a dim of the weight."""

    argument: int
    channels: int


_PRODUCTS: Final[Mapping[str, LayerWeight]] = {
    **dict.fromkeys(("aten::linear", "aten::conv1d", "aten::conv1d.padding"), LayerWeight(1, channels=0)),
    **dict.fromkeys(("aten::conv2d", "aten::conv2d.padding"), LayerWeight(1, channels=0)),
    **dict.fromkeys(("aten::conv3d", "aten::conv3d.padding"), LayerWeight(1, channels=0)),
    "aten::conv_transpose1d": LayerWeight(1, channels=1),
    **dict.fromkeys(("aten::conv_transpose2d.input", "aten::conv_transpose3d.input"), LayerWeight(1, channels=1)),
}
"""A value times a weight, which quantizers annotate; `.padding` has it as a word, "same" or "valid"."""

_BATCHED: Final = {"aten::bmm": 1, "aten::matmul": 1, "aten::baddbmm": 2}
"""Products of matrices, of which a weight has one for each, (…, inputs, outputs), and the argument that this is."""

EXPERTS: Final = frozenset({"aten::_grouped_mm", "transformers::grouped_mm_fallback", *_BATCHED})
"""Products of groups of rows, each with a matrix of its own, (experts, inputs, outputs): of a parameter that is
(experts, outputs, inputs), and transposed, or that has just this shape."""

WEIGHTS: Final[Mapping[str, LayerWeight]] = {
    **_PRODUCTS,
    **{f"aten::{kind}.input": LayerWeight(2, channels=0) for kind in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    **dict.fromkeys(("aten::embedding", "aten::embedding_bag.padding_idx"), LayerWeight(0, channels=0)),
    **{name: LayerWeight(_BATCHED.get(name, 1), channels=2) for name in EXPERTS},
}
"""By operator, all layers whose weights are stored in 8 or 4 bits."""


def channel_dim(node: Node) -> int | None:
    """The dim of the weight of a linear layer or convolution that stands for the channels of the result: 0, or 1 of a
    transposed convolution. None of another call."""
    layer = _PRODUCTS.get(operator_name(node))
    return None if layer is None else layer.channels


def is_layer(node: Node) -> bool:
    """Whether it is in the table; of products of matrices, those of values with a weight that has more than two dims
    and sums something."""
    name = operator_name(node) if node.op == "call_function" else ""
    if name not in _BATCHED:
        return name in WEIGHTS
    weight, others = node.args[_BATCHED[name]], node.args[: _BATCHED[name]]
    if not is_weight(weight) or not is_float_tensor(weight) or any(map(is_weight, others[-1:])):
        return False
    shape = weight.meta["val"].shape
    return len(shape) > 2 and shape[-2] > 1


def weights_of(layer: Node) -> list[Node]:
    """The weights that a layer is given: one, or those of a recurrent layer, and its biases."""
    weight = layer.args[WEIGHTS[operator_name(layer)].argument]
    return [own for own in (weight if isinstance(weight, list | tuple) else [weight]) if isinstance(own, Node)]


def transposed_source(view: object) -> Node | None:
    """The value that `view` shows with its last two dims swapped, by `t`, `mT`, `permute` or others; else None."""
    if not isinstance(view, Node) or view.op != "call_function" or not getattr(view.target, "is_view", False):
        return None
    (source,) = view.all_input_nodes
    swapped, seen = source.meta["val"].mT if source.meta["val"].ndim > 1 else None, view.meta["val"]
    if swapped is None or (seen.shape, seen.stride(), seen.storage_offset()) != (swapped.shape, swapped.stride(), 0):
        return None
    return source
