"""A graph -> the calls between a mask and the softmax that reads it, which stay float.

    scores = q @ k.T                            rounded, on a grid of its own
    hidden = scores / 8 + (mask - 1) * 10000    float: on one grid with -10,000 all scores are the same number, and with
    y      = softmax(hidden) @ v                -inf what is hidden is the lowest of them, which a softmax sees

Whether a sum hides is not for data to show: batches without padding have masks of zeros. It is for constants, which are
the same in each run: biases of positions are added to scores too, and hide none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Target

from delegraph.aot.graph.attention_masks import only_shifts
from delegraph.aot.graph.known_values import held_value
from delegraph.aot.quantize.annotations import ancestors

__all__ = ["masked_scores"]

aten = torch.ops.aten

_READERS: Final[Mapping[Target, int]] = {
    aten.softmax.int: 0,
    aten._softmax.default: 0,
    aten._safe_softmax.default: 0,
    aten.log_softmax.int: 0,
    aten._log_softmax.default: 0,
    aten.logsumexp.default: 0,
    aten.scaled_dot_product_attention.default: 3,
}
"""Which argument is of scores, or the mask of an attention in one call."""

_SUMS: Final = frozenset({aten.add.Tensor, aten.add_.Tensor, aten.sub.Tensor, aten.sub_.Tensor})
_HIDING: Final = frozenset({aten.add, aten.add_, aten.sub, aten.sub_, aten.where, aten.masked_fill, aten.masked_fill_})
"""Operators by which a mask hides scores."""

_MOVES: Final = frozenset(
    {
        *(aten.cat, aten.stack, aten.clone, aten.triu, aten.tril, aten.repeat, aten.dropout, aten.slice_scatter),
        *(aten.rsub, aten.to, aten._to_copy),
    }
)
"""Operators that a mask goes through, besides views and those that torch tags as pointwise."""


def masked_scores(model: GraphModule) -> frozenset[Node]:
    """The sums and the like that masks come into, what stands before them up to a product, and what reads them."""
    calls: set[Node] = set()
    for reader in model.graph.nodes:
        place = _READERS.get(reader.target)
        argument = reader.args[place] if place is not None and len(reader.args) > place else None
        if isinstance(argument, Node):
            elementwise = _elementwise(argument)
            if place or any(_hides(model, node) for node in elementwise):
                calls |= {*elementwise, reader}
    return frozenset(calls)


def _elementwise(value: Node) -> list[Node]:
    """The calls that `value` is made by, so far as they keep elements apart."""
    calls = ancestors([value], lambda node: node.all_input_nodes if _keeps_apart(node.target) else ())
    return [node for node in calls if _keeps_apart(node.target)]


def _keeps_apart(target: Target) -> bool:
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return target.is_view or torch.Tag.pointwise in target.tags or target.overloadpacket in _MOVES | _HIDING


def _hides(model: GraphModule, node: Node) -> bool:
    """Whether `node` combines two tensors and may hide scores: a number that is added hides nothing, and neither does a
    constant that only shifts them."""
    if len(node.all_input_nodes) < 2 or getattr(node.target, "overloadpacket", None) not in _HIDING:
        return False
    added = node.all_input_nodes if node.target in _SUMS and not node.kwargs else ()
    known = [value for operand in added if (value := held_value(model, operand)) is not None]
    return not any(map(only_shifts, known))
