"""What fusions ask of a partition's graph: both readings of a sum or product, parts of the last dim."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from delegraph.aot import schema_arguments
from delegraph_cpu.aot.converters.table import aten
from delegraph_cpu.aot.node_facts import rank_of, shape_of

__all__ = ["is_last", "products", "slice_of", "sums"]


def products(node: Any) -> list[tuple[Node, Node]]:
    """Both readings of a product of two nodes; none of another node."""
    return _readings(node, "mul.Tensor")


def sums(node: Any) -> list[tuple[Node, Node]]:
    """Both readings of a plain sum of two nodes."""
    return _readings(node, "add.Tensor") if isinstance(node, Node) and not node.kwargs else []


def _readings(node: Any, name: str) -> list[tuple[Node, Node]]:
    if not isinstance(node, Node) or node.target != aten(name):
        return []
    one, other = node.args[:2]
    return [(one, other), (other, one)] if isinstance(one, Node) and isinstance(other, Node) else []


def is_last(dim: Any, node: Node) -> bool:
    """Whether `dim` is the last one of `node`, from whichever end it is counted."""
    return dim in (-1, rank_of(node) - 1)


def slice_of(node: Any, x: Node) -> tuple[int, int] | None:
    """The part of the last dim of `x` that `node` is: from where, and up to where."""
    if node.target not in (aten("slice_copy.Tensor"), aten("slice.Tensor")):
        return None
    source, dim, start, end, step = schema_arguments(node)
    size = shape_of(x)[-1]
    if source is not x or not is_last(dim, x) or step != 1:
        return None
    if not isinstance(size, int) or isinstance(start, Node) or isinstance(end, Node):
        return None
    return slice(start, end).indices(size)[:2]
