"""An ATen graph -> its residual sums that are normalized, for quantizers, which give them more bits than other values.

x = cat([token, patches])     a norm makes each row as large as any other, and so the error of its grid: rows that
x = x + attention(norm(x))    are small beside the largest, as a class token's or a padded one's, are lost in 8
x = x + mlp(norm(x))          bits of one grid, and every later sum carries what they have lost
"""

from __future__ import annotations

from typing import Final, TypeGuard

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import Target

from delegraph.aot.quantize.annotations import VALUE_MOVES, ancestors, is_float_tensor

__all__ = ["normalized_sums"]

aten = torch.ops.aten

_NORMS: Final = frozenset({aten.layer_norm.default, aten.rms_norm.default, aten.group_norm.default})

_SUM: Final = aten.add.Tensor

_PASSED: Final[frozenset[Target]] = VALUE_MOVES | {_SUM, aten.cat.default}
"""Operators whose result has rows as large as those of their input, or with more added."""


def normalized_sums(model: GraphModule) -> frozenset[Node]:
    """The sums that a norm over rows or groups reads, those that these add up, and what joins or moves values between.

    Norms are `layer_norm`, `rms_norm` and `group_norm` as one call. A norm of what no sum is part of has none.
    """
    normed = [node.args[0] for node in model.graph.nodes if node.target in _NORMS]
    before = set(ancestors(filter(_is_passed, normed), lambda node: filter(_is_passed, node.all_input_nodes)))
    sums = {node for node in before if node.target is _SUM}
    for node in model.graph.nodes:
        if node in before and not sums.isdisjoint(node.all_input_nodes):
            sums.add(node)
    for node in reversed(model.graph.nodes):
        if node in before and not sums.isdisjoint(node.users):
            sums.add(node)
    return frozenset(sums)


def _is_passed(value: object) -> TypeGuard[Node]:
    return is_float_tensor(value) and value.target in _PASSED
