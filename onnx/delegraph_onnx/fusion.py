"""Calls that are converted together: the last of them -> operators that take the place of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from torch.fx import Node

if TYPE_CHECKING:
    from delegraph_onnx.graph_builder import GraphBuilder

__all__ = ["Fusion"]


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
