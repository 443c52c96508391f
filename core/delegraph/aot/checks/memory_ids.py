"""Methods -> nothing, or an error for the first `meta["memory_id"]` that names no memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from torch.fx import Node

from delegraph.aot.graph.signature import MethodGraph
from delegraph.aot.graph.source_location import user_location
from delegraph.errors import LoweringError

__all__ = ["check_memory_ids"]

HIGHEST: Final = 2**16 - 1
"""A file has a table of sizes up to the highest id in use; this keeps it below a megabyte (8 bytes an entry)."""


def check_memory_ids(methods: Iterable[MethodGraph]) -> None:
    """Raise `LoweringError`, naming the node, unless each memory id that a pass asked for is a number from 1 on."""
    for method in methods:
        for node in (*method.signature.inputs, *method.signature.states, *method.calls()):
            if "memory_id" in node.meta and (problem := _problem(node)):
                raise LoweringError(
                    f"meta['memory_id'] is {node.meta['memory_id']!r}: {problem}. A memory id is a whole number from 1"
                    f" to {HIGHEST} (0 is reserved for constants); a call with several results takes one for all, or a"
                    " list with one for each",
                    node=node.name,
                    location=user_location(node),
                )


def _problem(node: Node) -> str:
    ids, value = node.meta["memory_id"], node.meta.get("val")
    if not isinstance(ids, (list, tuple)):
        return _problem_of_one(ids)
    if not isinstance(value, (list, tuple)):
        return "a list, but this node gives one value"
    if len(ids) != len(value):
        return f"{len(ids)} ids for {len(value)} results"
    return next(filter(None, map(_problem_of_one, ids)), "")


def _problem_of_one(memory_id: object) -> str:
    if not isinstance(memory_id, int) or isinstance(memory_id, bool):
        return f"{type(memory_id).__name__} is not a whole number"
    return "" if 1 <= memory_id <= HIGHEST else f"{memory_id} is out of range"
