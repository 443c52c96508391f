"""Query, key and value that are slices of one product, as Phi-3 has it -> the product, which attention takes whole.

q, k, v = qkv[…, :n], qkv[…, n:m], qkv[…, m:]        each: (batch, rows, features) -> (batch, heads, rows, size)
q, k, v = split(qkv, [n, m - n, …], -1)              or so: GPT-2's
"""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from delegraph_onnx.converters.table import aten
from delegraph_onnx.graph_patterns import slice_of, sliced_from
from delegraph_onnx.node_facts import rank_of, same_sizes, shape_of

__all__ = ["packed_projections"]


def packed_projections(three: Sequence[Node]) -> Node | None:
    """What `three`, of shape (batch, heads, rows, size), are one behind the other; None: they are not of one."""
    slices = [_features(heads) for heads in three]
    source = sliced_from(slices[0])
    if source is None or rank_of(source) != 3 or not isinstance(shape_of(source)[-1], int):
        return None
    end = 0
    for sliced in slices:
        part = None if sliced is None else slice_of(sliced, source)
        if part is None or part[0] != end:
            return None
        end = part[1]
    return source if end == shape_of(source)[-1] else None


def _features(heads: Node) -> Node | None:
    """What, of shape (batch, rows, heads * size), `heads` are the parts of."""
    if heads.target != aten("permute_copy") or heads.args[1] != [0, 2, 1, 3]:
        return None
    parted = heads.args[0]
    if not isinstance(parted, Node) or parted.target != aten("view_copy"):
        return None
    features = parted.args[0]
    joined = [*shape_of(parted)[:2], shape_of(parted)[2] * shape_of(parted)[3]]
    return features if isinstance(features, Node) and same_sizes(shape_of(features), joined) else None
