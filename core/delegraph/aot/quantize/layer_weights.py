"""A call -> where its weight is, and which dim of that are the channels of the result: the one table of such layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch.fx import Node

from delegraph.aot.graph.operator_names import operator_name

__all__ = ["EXPERTS", "PROJECTIONS", "WEIGHTS", "LayerWeight", "channel_dim", "is_projection"]


@dataclass(frozen=True, slots=True)
class LayerWeight:
    """argument: which one it is; of a recurrent layer, a list of weights and biases. channels: a dim of the weight."""

    argument: int
    channels: int


_PRODUCTS: Final[Mapping[str, LayerWeight]] = {
    "aten::linear": LayerWeight(1, channels=0),
    "aten::conv1d": LayerWeight(1, channels=0),
    "aten::conv1d.padding": LayerWeight(1, channels=0),
    "aten::conv2d": LayerWeight(1, channels=0),
    "aten::conv2d.padding": LayerWeight(1, channels=0),
    "aten::conv3d": LayerWeight(1, channels=0),
    "aten::conv3d.padding": LayerWeight(1, channels=0),
    "aten::conv_transpose1d": LayerWeight(1, channels=1),
    "aten::conv_transpose2d.input": LayerWeight(1, channels=1),
    "aten::conv_transpose3d.input": LayerWeight(1, channels=1),
}
"""A value times a weight, which quantizers annotate; `.padding` has it as a word, "same" or "valid"."""

PROJECTIONS: Final[Mapping[str, LayerWeight]] = {
    "aten::addmm": LayerWeight(2, channels=1),
    "aten::matmul": LayerWeight(1, channels=1),
    "aten::mm": LayerWeight(1, channels=1),
}
"""The same written as a product of matrices, `x @ W`, W (inputs, outputs), as GPT-2 has it: layers if the model has W.
What is multiplied stands before the weight."""

EXPERTS: Final = frozenset({"aten::_grouped_mm", "transformers::grouped_mm_fallback"})
"""Products of groups of rows, each with a matrix of its own, (experts, inputs, outputs): of a parameter that is
(experts, outputs, inputs), and transposed, or that has just this shape."""

WEIGHTS: Final[Mapping[str, LayerWeight]] = {
    **_PRODUCTS,
    **PROJECTIONS,
    "aten::lstm.input": LayerWeight(2, channels=0),
    "aten::gru.input": LayerWeight(2, channels=0),
    "aten::embedding": LayerWeight(0, channels=0),
    "aten::embedding_bag.padding_idx": LayerWeight(0, channels=0),
    **dict.fromkeys(EXPERTS, LayerWeight(1, channels=2)),
}
"""By operator, all layers whose weights are stored in 8 or 4 bits."""


def channel_dim(node: Node) -> int | None:
    """Of a linear layer or convolution, which takes a value and its weight, the dim of the weight that the channels of
    the result are: 0, or 1 of a transposed one. None of another call."""
    layer = _PRODUCTS.get(operator_name(node))
    return None if layer is None else layer.channels


def is_projection(weight: Any) -> bool:
    """Whether the second matrix of such a product is one that sums are made with: of one row, which makes angles of
    positions, is none."""
    shape = weight.meta["val"].shape
    return len(shape) == 2 and shape[0] != 1
