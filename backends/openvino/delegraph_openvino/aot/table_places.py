"""A partition's graph -> for each input whose elements are places of a table, how many that has: a run checks them.

    tokens ── view ── to int32 ──> embedding(weight, …)        tokens are 0 to len(weight) - 1

OpenVINO gives zeros for others. What is computed before it picks rows is not looked at.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import Graph, Node

from delegraph.aot.authoring import operator_name
from delegraph_openvino.blob import Places

__all__ = ["places_of_inputs"]

_PICKING: Final = {"aten::embedding": (0, None, 1), "aten::index_select": (0, 1, 2)}
"""Operator -> the positions of the table, of the dim (None: the first) and of the places, none of which is below 0."""

_WHOLE: Final = frozenset(
    {
        *("aten::view_copy", "aten::unsqueeze_copy", "aten::squeeze_copy.dims", "aten::squeeze_copy.dim"),
        *("aten::permute_copy", "aten::expand_copy", "aten::clone", "aten::t_copy", "aten::transpose_copy.int"),
        *("dim_order_ops::_clone_dim_order", "dim_order_ops::_to_dim_order_copy"),
    }
)
"""What keeps all elements."""


def places_of_inputs(graph: Graph) -> dict[Node, Places]:
    """By placeholder; of several tables the one with the fewest places."""
    found: dict[Node, Places] = {}
    for node in graph.nodes:
        picked = _picked(node)
        if picked is not None:
            source, places = picked
            known = found.get(source)
            found[source] = places if known is None or places.size < known.size else known
    return found


def _picked(node: Node) -> tuple[Node, Places] | None:
    positions = _PICKING.get(operator_name(node)) if node.op == "call_function" else None
    if positions is None:
        return None
    at, dim_at, places_at = positions
    table, source = node.args[at], node.args[places_at]
    while isinstance(source, Node) and source.op == "call_function" and operator_name(source) in _WHOLE:
        source = source.args[0]
    if not isinstance(table, Node) or not isinstance(source, Node) or source.op != "placeholder":
        return None
    dim = 0 if dim_at is None else node.args[dim_at]
    shape = table.meta["val"].shape
    size = shape[dim] if shape and isinstance(dim, int) else None
    is_whole_number = source.meta["val"].dtype in (torch.int32, torch.int64)
    return (source, Places(source.name, table.name, size)) if isinstance(size, int) and is_whole_number else None
