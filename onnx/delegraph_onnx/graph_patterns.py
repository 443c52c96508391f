"""Patterns in a partition's graph: parts of the last dim, heads repeated."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, Final

from torch.fx import Node

from delegraph.aot import schema_arguments
from delegraph.aot.authoring import ANY, Bindings, behind, captured, either, matches, op
from delegraph_onnx.node_facts import COPIES, are_known, aten, rank_of, same_sizes, shape_of

__all__ = ["copied", "is_along_the_last_dim", "is_last", "slice_of", "sliced_from", "unrepeated", "with_repeated_heads"]


def is_last(dim: Any, node: Node) -> bool:
    """Whether `dim` is the last one of `node`, from whichever end it is counted."""
    return dim in (-1, rank_of(node) - 1)


def is_along_the_last_dim(node: Node) -> bool:
    """Whether the second argument of a call, a dim, is the last one of its result."""
    return is_last(schema_arguments(node)[1], node)


def copied(pattern: Any) -> Any:
    """`pattern`, or copies of it, of any dtype."""
    return behind(lambda node: node.target in COPIES, pattern)


def sliced_from(node: Any) -> Node | None:
    """The node of which `node` is a slice, or one of the parts into which it is split."""
    if not isinstance(node, Node) or node.op != "call_function":
        return None
    if node.target is operator.getitem:
        split = node.args[0]
        node = split if isinstance(split, Node) and split.target == aten("split_with_sizes_copy") else None
    elif node.target not in _SLICES:
        return None
    return None if node is None else node.args[0]


def slice_of(node: Any, x: Node, step: int = 1) -> tuple[int, int] | None:
    """The part of the last dim of `x` that `node` is, each element or each `step`-th: its start and its end."""
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
    """The same, where `part` is one of the parts into which `x` is split."""
    split, index = part.args
    assert isinstance(split, Node) and isinstance(index, int)
    _, sizes, dim = schema_arguments(split)
    if not is_last(dim, x) or not all(isinstance(size, int) for size in sizes):
        return None
    return sum(sizes[:index]), sum(sizes[: index + 1])


# ---- keys or values whose heads are repeated for groups of queries, which attention takes as they are -------------
#
# k ── unsqueeze 2 ── expand ── view ──> (batch, groups * repetitions, length, size)   ──>  k of (batch, groups, …)


[_SOURCE] = captured("source")
_APART: Final = op(aten("unsqueeze_copy"), copied(_SOURCE), ANY)
_EXPANDED: Final = op(aten("expand_copy"), copied(_APART), ANY)
_JOINED: Final = op(aten("view_copy"), copied(_EXPANDED), ANY)
_HEADS: Final = copied(either(_JOINED, _SOURCE))


def with_repeated_heads(node: Node) -> Iterator[tuple[Node, frozenset[Node]]]:
    """The nodes whose heads `node` repeats, or which it copies, itself among them, each with the calls between."""
    for reading in matches(_HEADS, node):
        if _JOINED not in reading.calls or _repeats_heads(reading):
            yield reading["source"], reading.nodes


def unrepeated(node: Node) -> Node:
    """The node whose heads `node` repeats; itself if it does not."""
    return next((reading["source"] for reading in matches(copied(_JOINED), node) if _repeats_heads(reading)), node)


def _repeats_heads(reading: Bindings) -> bool:
    """Whether each head is repeated r times: (batch, heads, …) -> (batch, heads, r, …) -> joined."""
    source = reading["source"]
    if source.op == "get_attr" or rank_of(source) != 4:
        return False
    (batch, heads, length, size), repetitions = shape_of(source), shape_of(reading.calls[_EXPANDED])[2]
    if not are_known(heads, repetitions):
        return False
    return (
        same_sizes(shape_of(reading.calls[_APART]), (batch, heads, 1, length, size))
        and same_sizes(shape_of(reading.calls[_EXPANDED]), (batch, heads, repetitions, length, size))
        and same_sizes(shape_of(reading.calls[_JOINED]), (batch, heads * repetitions, length, size))
    )
