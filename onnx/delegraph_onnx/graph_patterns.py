"""Patterns in a partition's graph: both readings of a sum or product, parts of the last dim, heads repeated."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

from torch.fx import Node

from delegraph.aot import schema_arguments
from delegraph_onnx.node_facts import COPIES, aten, in_words, rank_of, shape_of

__all__ = ["REPEATING", "is_last", "products", "repeats_heads", "slice_of", "sliced_from", "sums", "unrepeated"]


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


def sliced_from(node: Any) -> Node | None:
    """What `node` is a slice of, or one of the parts that it is split into."""
    if not isinstance(node, Node) or node.op != "call_function":
        return None
    if node.target is operator.getitem:
        split = node.args[0]
        node = split if isinstance(split, Node) and split.target == aten("split_with_sizes_copy") else None
    elif node.target not in _SLICES:
        return None
    return None if node is None else node.args[0]


def slice_of(node: Any, x: Node, step: int = 1) -> tuple[int, int] | None:
    """The part of the last dim of `x` that `node` is, each element or each `step`-th: from where, and up to where."""
    if sliced_from(node) is not x or not isinstance(size := shape_of(x)[-1], int):
        return None
    if node.target is operator.getitem:
        return _part_of(node, x) if step == 1 else None
    _, dim, start, end, each = schema_arguments(node)
    if not is_last(dim, x) or each != step or isinstance(start, Node) or isinstance(end, Node):
        return None
    return slice(start, end).indices(size)[:2]


_SLICES: Final = (aten("slice_copy.Tensor"), aten("slice.Tensor"))


def _part_of(part: Node, x: Node) -> tuple[int, int] | None:
    """The same of one of the parts that `x` is split into."""
    split, index = part.args
    assert isinstance(split, Node) and isinstance(index, int)
    _, sizes, dim = schema_arguments(split)
    if not is_last(dim, x) or not all(isinstance(size, int) for size in sizes):
        return None
    return sum(sizes[:index]), sum(sizes[: index + 1])


# ---- keys or values whose heads are repeated for groups of queries, which attention takes as they are -------------
#
# k ── unsqueeze 2 ── expand ── view ──> (batch, groups * repetitions, length, size)   ──>  k of (batch, groups, …)

REPEATING: Final = frozenset([aten("unsqueeze_copy"), aten("expand_copy"), aten("view_copy"), *COPIES])
"""Of what a repetition is made, if it is one."""


def unrepeated(node: Node) -> Node:
    """The node whose heads `node` repeats; itself if it does not."""
    chain: list[Node] = []
    source = node
    while source.op == "call_function" and source.target in REPEATING and len(chain) < _LONGEST:
        chain.append(source)
        source = source.args[0]  # type: ignore[assignment]
        if source.op != "get_attr" and rank_of(source) == 4 and _steps(chain) and repeats_heads(chain[::-1], source):
            return source
    return node


_LONGEST: Final = 8


def repeats_heads(chain: Sequence[Node], source: Node) -> bool:
    """Whether `chain` is nothing, or repeats each head r times: (batch, heads, …) -> (batch, heads, r, …) -> joined."""
    steps = _steps(chain)
    if not steps:
        return True
    batch, heads, length, size = shape_of(source)
    if [node.target for node in steps] != [aten("unsqueeze_copy"), aten("expand_copy"), aten("view_copy")]:
        return False
    repetitions = shape_of(steps[1])[2]
    shapes = [in_words(shape_of(node)) for node in steps]
    if not isinstance(heads, int) or not isinstance(repetitions, int):
        return False
    wanted = [
        (batch, heads, 1, length, size),
        (batch, heads, repetitions, length, size),
        (batch, heads * repetitions, length, size),
    ]
    return shapes == [in_words(shape) for shape in wanted]


def _steps(chain: Sequence[Node]) -> list[Node]:
    return [node for node in chain if node.target not in COPIES]
