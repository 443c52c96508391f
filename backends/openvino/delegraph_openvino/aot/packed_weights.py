"""Weights of 4 bits, two codes to a byte -> constants of OpenVINO's type for them.

    bytes ─┬─ & 15 ──┬─ stack ─ view ─ dequantize ─ view ─ linear
           └─ // 16 ─┘

The unpacking calls are left out then, and the bytes are read as they are: OpenVINO's products know such weights, in
groups that have a dim of their own.

    codes (rows, groups, group) ─ Convert ─ Subtract(zeros) ─ Multiply(scales) ─ Reshape (rows, groups * group)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch.fx import Graph, Node

from delegraph.aot.authoring import Constants, Quantizations

__all__ = ["PackedWeight", "packed_weights"]


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight of `shape`; `node` is the placeholder of its packed `codes`; `scale` has a number for each group, row by
    row, and `zero_points` are (rows, groups, 1)."""

    node: Node
    codes: NDArray[np.uint8]
    shape: tuple[int, int]
    scale: Node
    zero_points: NDArray[np.uint8]


def packed_weights(graph: Graph, constants: Constants) -> dict[Node, PackedWeight]:
    """The weights of `graph` by the call whose result is the weight in float."""
    weights = {node: weight for node in graph.nodes if (weight := _packed(node, constants)) is not None}
    return {node: weight for node, weight in weights.items() if not node.users.keys() <= weights.keys()}


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
