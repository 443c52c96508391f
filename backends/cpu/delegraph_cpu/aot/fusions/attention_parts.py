"""Attention in a partition's graph, as one call or written out -> what it is of.

    scores = matmul(q, transposed k) * scale                  or / a number; not at all: 1
    scores = tanh(scores / softcap) * softcap                 Gemma 2's
    scores = scores + where(mask, 0, lowest)
    scores = cat([scores, sinks])                             GPT-OSS's: what each head may see instead of any place
    y      = matmul(softmax(scores)[…, :-1], v)

transformers calls that "eager"; by it alone run models that have a softcap or sinks.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Final

from torch.fx import Node

from delegraph.aot import schema_arguments
from delegraph.aot.authoring import Capture, Constants, Op, behind, captured, either, matches, op
from delegraph_cpu.aot.fusions.masks import hidden_by
from delegraph_onnx.converters.attention import scale_of
from delegraph_onnx.converters.table import aten
from delegraph_onnx.graph_patterns import is_along_the_last_dim, slice_of
from delegraph_onnx.node_facts import COPIES, dtype_of, in_words, rank_of, shape_of

__all__ = ["Attention", "attention_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Attention:
    """`root` is the result of attention to what `mask` lets each row see; `sinks` has shape (heads,).

    `readers` are the calls that read key and value: the root or one of `between`, which nobody else reads.
    """

    root: Node
    query: Node
    key: Node
    value: Node
    mask: Node
    scale: float
    readers: tuple[Node, Node]
    between: frozenset[Node] = frozenset()
    softcap: float = 0.0
    sinks: Node | None = None


def attention_of(node: Node, constants: Constants) -> Attention | None:
    """`node` as attention in inference, with a mask; None: it is something else."""
    if node.target == aten("matmul"):
        return _written_out(node, constants)
    if node.target != aten("scaled_dot_product_attention"):
        return None
    query, key, value, mask, dropout, is_causal, *_ = schema_arguments(node)
    if mask is None or dropout or is_causal:
        return None
    return Attention(node, query, key, value, mask, scale_of(node), (node, node))


# ---- the calls that it is written out as -----------------------------------------------------------------------------


def _is_copy(node: Node) -> bool:
    return node.target in COPIES and dtype_of(node) == dtype_of(node.args[0])  # type: ignore[arg-type]


def _is_moved(node: Node) -> bool:
    """Whether `node` is a copy, or scores times a number or divided by one."""
    return _is_copy(node) or node.target in (aten("mul.Tensor"), aten("div.Tensor"))


def _swaps_the_last_two(node: Node) -> bool:
    rank = rank_of(node)
    return [dim % rank for dim in node.args[1]] == [*range(rank - 2), rank - 1, rank - 2]  # type: ignore[union-attr, operator]


def _leaves_the_last_out(node: Node) -> bool:
    """Whether `node` is x[…, :-1]."""
    source, *_ = schema_arguments(node)
    return slice_of(node, source) == (0, shape_of(source)[-1] - 1)


def _softmax(scores: Any) -> Op:
    return op(aten("_softmax"), _copied(scores)).where(is_along_the_last_dim)


_copied, _moved = partial(behind, _is_copy), partial(behind, _is_moved)
_KEYS: Final = op(aten("permute_copy"), Capture("key")).where(_swaps_the_last_two)
_PRODUCT: Final = op(aten("matmul"), Capture("query"), _copied(_KEYS))
_BENT: Final = op(aten("tanh"), _moved(_PRODUCT))
_MASKED: Final = op(aten("add.Tensor"), _moved(either(_BENT, _PRODUCT)), *captured("bias"), alpha=1)
_JOINED: Final = op(aten("cat"), [_copied(_MASKED), Capture("sinks")]).where(is_along_the_last_dim)
_LARGEST: Final = either(op(operator.getitem, op(aten("max.dim"), _JOINED), 0), op(aten("amax"), _JOINED))
_SHIFTED: Final = op(aten("sub.Tensor"), _JOINED, _LARGEST, alpha=1).where(
    lambda node: _sizes(node.args[1])[-1:] == (1,)
)
_SEEN: Final = op(aten("slice_copy.Tensor"), _copied(_softmax(either(_SHIFTED, _JOINED)))).where(_leaves_the_last_out)
_ATTENDED: Final = op(aten("matmul"), _copied(either(_SEEN, _softmax(_MASKED))), Capture("value"))
"""A softmax is the same of scores and of what is left of them without the largest."""


def _written_out(root: Node, constants: Constants) -> Attention | None:
    for parts in matches(_ATTENDED, root):
        between, bent = parts.nodes - {root}, parts.calls.get(_BENT)
        factors = {node: _factor(node, constants) for node in parts.between if not _is_copy(node)}
        sinks = _of_each_head(parts["sinks"]) if _JOINED in parts.calls else None
        if (
            all(factors.values())
            and (sinks is not None or _JOINED not in parts.calls)
            and hidden_by(parts["bias"], constants) is not None
            and not any({*node.users} - between - {root} for node in between)
        ):
            readers = parts.calls[_KEYS], root
            softcap = prod(factor for node, factor in factors.items() if bent is not None and bent < node)
            scale, softcap = prod(factors.values(), start=1.0), abs(softcap) if bent is not None else 0.0
            three = parts["query"], parts["key"], parts["value"]
            return Attention(root, *three, parts["bias"], scale, readers, between, softcap, sinks)
    return None


def _factor(node: Node, constants: Constants) -> float:
    """The number by which `node` multiplies scores; 0: none."""
    number = constants.number(node.args[1])
    if not isinstance(number, float | int) or not number:
        return 0.0
    return number if node.target == aten("mul.Tensor") else 1 / number


def _of_each_head(node: Any) -> Node | None:
    """The number for each head that `node`, of shape (batch, heads, rows, 1), repeats; None: it repeats none."""
    heads = _sizes(node)[1:2]
    if node.target == aten("expand_copy"):
        node = node.args[0]
    if _sizes(node) != (1, *heads, 1, 1):
        return None
    while isinstance(node, Node) and node.target in _VIEWS:
        node = node.args[0]
        if isinstance(node, Node) and _sizes(node) == heads:
            return node
    return None


_VIEWS: Final = frozenset(map(aten, ("view_copy", "unsqueeze_copy")))


def _sizes(node: Any) -> tuple[int | str, ...]:
    return in_words(shape_of(node))
