"""A partition's graph -> calls that are converted together: the last of them -> what takes their place.

Each kind has a module, which finds all of its occurrences. Whatever else was computed for these calls alone (a mask, a
rotation) is converted too, and left out with all that no output needs (`GraphBuilder.model`).
"""

from __future__ import annotations

from typing import Protocol

from torch.fx import Graph, Node

from delegraph.aot import ResolvedSignature
from delegraph_cpu.aot.cached_attention import cached_attentions
from delegraph_cpu.aot.graph_builder import GraphBuilder
from delegraph_cpu.aot.rms_norm import rms_norms
from delegraph_cpu.aot.rotary_embedding import rotary_embeddings

__all__ = ["Fusion", "fusions"]


class Fusion(Protocol):
    """An occurrence: where it is converted, and the calls that are not converted besides it."""

    @property
    def root(self) -> Node:
        """The call in whose place it is converted: the last one."""

    @property
    def replaced(self) -> frozenset[Node]:
        """Calls whose values `convert` gives, or that nobody else reads."""

    def convert(self, g: GraphBuilder) -> None:
        """Add its operators to the graph, and the values of the root and of what it replaced to `g.values`."""


def fusions(graph: Graph, signature: ResolvedSignature) -> dict[Node, Fusion]:
    """All of them, by their root."""
    found: list[Fusion] = [
        *rotary_embeddings(graph),  # of which attention to a cache needs none
        *cached_attentions(graph, signature),
        *rms_norms(graph, signature),
    ]
    return {fusion.root: fusion for fusion in found}
