"""Weights of 4 bits, two codes to a byte -> constants of OpenVINO's type for them.

    bytes ─┬─ & 15 ──┬─ stack ─ view ─ dequantize ─ view ─ linear
           └─ // 16 ─┘

What unpacks them is left out, and the bytes are read as they are: OpenVINO's products know such weights, in groups that
have a dim of their own.

    codes (rows, groups, group) ─ Convert ─ Subtract(zeros) ─ Multiply(scales) ─ Reshape (rows, groups * group)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from torch.fx import Graph, Node

from delegraph.aot.authoring import Constants, Quantizations, operator_name

__all__ = ["PackedWeight", "packed_weights"]

_UNPACKS: Final = frozenset(
    {
        *("aten::bitwise_and.Scalar", "aten::div.Tensor_mode", "aten::unsqueeze_copy", "aten::unsqueeze", "aten::cat"),
        *("aten::stack", "aten::view_copy", "aten::view", "aten::reshape", "aten::_unsafe_view"),
        "quantized_decomposed::dequantize_per_channel",
    }
)


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight of `shape`, whose `codes` `node` holds, packed as they are stored; `scale` has one for each group, one
    row behind the other, and `zero_points` are of (rows, groups, 1)."""

    node: Node
    codes: NDArray[np.uint8]
    shape: tuple[int, int]
    scale: Node
    zero_points: NDArray[np.uint8]


def packed_weights(graph: Graph, constants: Constants) -> tuple[dict[Node, PackedWeight], set[Node]]:
    """Those of `graph`, by the call whose result is the weight in float; and the calls that unpack them."""
    found = {node: weight for node in graph.nodes if (weight := _packed(node, constants)) is not None}
    whole = {node: weight for node, weight in found.items() if not node.users.keys() <= found.keys()}
    calls = {node: _unpacking_calls(weight.node, whole) for node, weight in whole.items()}
    left_out: set[Node] = set().union(*(found for found in calls.values() if found is not None))
    return {node: weight for node, weight in whole.items() if calls[node] is not None}, left_out


def _packed(node: Node, constants: Constants) -> PackedWeight | None:
    known = Quantizations(constants)
    stored = known.stored(node)
    weight = None if stored is None or not stored.is_packed else known.weight(node)
    if stored is None or weight is None or len(weight.shape) != 2 or weight.quantization.axis not in (0, None):
        return None
    rows, inner = weight.shape
    scale, zeros = stored.call.scale, weight.quantization.zero_point
    groups = zeros.size // rows
    if not isinstance(scale, Node) or groups * rows != zeros.size or inner % groups:
        return None
    zero_points = zeros.reshape(rows, groups, 1).astype(np.uint8)
    return PackedWeight(stored.node, weight.stored, (rows, inner), scale, zero_points)


def _unpacking_calls(packed: Node, weights: dict[Node, Any]) -> set[Node] | None:
    """The calls between the bytes `packed` and `weights`; None if something else is made of them."""
    calls: set[Node] = set()
    left = [packed]
    while left:
        users = left.pop().users.keys() - weights.keys() - calls
        if any(operator_name(user) not in _UNPACKS for user in users):
            return None
        calls |= users
        left += users
    return calls
