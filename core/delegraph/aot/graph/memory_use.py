"""A pass's decision about a result's memory, written on its node: read by emission, shown by the graph's text.

%view : f32[4] = aten.view_copy.default(%add, [4])  # shows the memory of %add
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Final

from torch.fx import GraphModule, Node

from delegraph.aot.graph.bodies import all_nodes

__all__ = [
    "MEMORY_USE",
    "PART_OF",
    "PIECE_OFFSETS",
    "MemoryUse",
    "clear_memory_use",
    "memory_use",
    "part_of",
    "piece_offsets",
]

MEMORY_USE: Final = "memory_use"
"""The key in `node.meta`. A node without it has memory of its own."""

PIECE_OFFSETS: Final = "piece_offsets"
PART_OF: Final = "part_of"


class MemoryUse(Enum):
    """How a result is kept. Each value is how the graph's text says it."""

    VIEW = "shows the memory of"
    """The bytes are those of the first argument: no instruction."""

    RESIZED_VIEW = "shows, at a size known at run time, the memory of"
    """The same; the sizes take an instruction (`executorch_prim::et_view`)."""

    IN_PLACE = "overwrites the memory of"
    """The result is the argument that it is a changed version of, and the call may write into it."""

    PIECE = "shows a piece of the memory of"
    """The bytes begin somewhere in those of the first argument (`piece_offsets`); or several such results."""

    WHOLE = "is written in parts by"
    """Its parts are computed in its memory, or copied there; see PART."""

    PART = "is a part of"
    """The result is written into the memory of the WHOLE that `part_of` names."""


def memory_use(node: Node) -> MemoryUse | None:
    """The decision about the memory of `node`; None: it has memory of its own."""
    use = node.meta.get(MEMORY_USE)
    return use if isinstance(use, MemoryUse) else None


def piece_offsets(node: Node) -> tuple[int, ...]:
    """The byte of the first argument at which each result of a PIECE begins."""
    offsets: tuple[int, ...] = node.meta[PIECE_OFFSETS]
    return offsets


def part_of(node: Node) -> tuple[str, int] | None:
    """The node, by name, in whose memory a PART lies (a WHOLE may be one too), and the byte at which it begins."""
    part: tuple[str, int] | None = node.meta.get(PART_OF)
    return part


def clear_memory_use(module: GraphModule, uses: Collection[MemoryUse] = tuple(MemoryUse)) -> None:
    """Take the marks of these kinds off the nodes of a graph and of the bodies in it."""
    for node in all_nodes(module):
        if memory_use(node) in uses:
            for key in (MEMORY_USE, PART_OF, PIECE_OFFSETS):
                node.meta.pop(key, None)
