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
from typing import Any, Final

from torch.fx import Node

from delegraph.aot import schema_arguments
from delegraph.aot.authoring import Constants, captured, matches, op
from delegraph_cpu.aot.masks import hidden_by
from delegraph_onnx.converters.attention import scale_of
from delegraph_onnx.converters.table import aten
from delegraph_onnx.graph_patterns import is_last, slice_of
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
        return _Reader(constants).attention(node)
    if node.target != aten("scaled_dot_product_attention"):
        return None
    query, key, value, mask, dropout, is_causal, *_ = schema_arguments(node)
    if mask is None or dropout or is_causal:
        return None
    return Attention(node, query, key, value, mask, scale_of(node), (node, node))


class _Reader:
    """Reads attention that is written out, from its end; `met` are the calls that it is made of."""

    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.met: set[Node] = set()

    def attention(self, root: Node) -> Attention | None:
        """`root` as a product of weights and values."""
        weights, value = root.args[:2]
        scores, sinks = self.softmaxed(weights)
        scores, mask = self.masked(scores)
        scores, scale = self.scaled(scores)
        softcap = 0.0
        bent = self.call(scores, "tanh")
        if bent is not None:
            softcap = abs(scale)
            scores, inner = self.scaled(bent.args[0])
            scale *= inner
        product = self.call(scores, "matmul")
        transposed = None if product is None else self.call(product.args[1], "permute_copy")
        if mask is None or product is None or transposed is None:
            return None
        rank = rank_of(transposed)
        if [dim % rank for dim in transposed.args[1]] != [*range(rank - 2), rank - 1, rank - 2]:  # type: ignore[union-attr, operator]
            return None
        if any(not {*node.users} <= self.met | {root} for node in self.met):
            return None
        query, key, readers = product.args[0], transposed.args[0], (transposed, root)
        return Attention(root, query, key, value, mask, scale, readers, frozenset(self.met), softcap, sinks)  # type: ignore[arg-type]

    def call(self, node: Any, *names: str) -> Node | None:
        """`node`, or what it copies, if it is a call of one of `names`."""
        while isinstance(node, Node) and node.target in COPIES and dtype_of(node) == dtype_of(node.args[0]):  # type: ignore[arg-type]
            self.met.add(node)
            node = node.args[0]
        if not isinstance(node, Node) or node.target not in [aten(name) for name in names]:
            return None
        self.met.add(node)
        return node

    def softmaxed(self, weights: Any) -> tuple[Node | None, Node | None]:
        """What `weights` are the softmax of, and the sinks, which then are left out."""
        without = self.call(weights, "slice_copy.Tensor")
        softmax = self.call(weights if without is None else without.args[0], "_softmax")
        if softmax is None or not is_last(softmax.args[1], softmax):
            return None, None
        if without is None:
            return softmax.args[0], None  # type: ignore[return-value]
        joined = self.call(self.unshifted(softmax.args[0]), "cat")
        parts, dim, *_ = ([], -1) if joined is None else schema_arguments(joined)
        if len(parts) != 2 or not is_last(dim, parts[0]) or not _leaves_the_last_out(without):
            return None, None
        scores, sinks = parts[0], _of_each_head(parts[1])
        return (None, None) if sinks is None else (scores, sinks)

    def unshifted(self, node: Any) -> Any:
        """x of x - max(x), which have the same softmax."""
        difference = self.call(node, "sub.Tensor")
        if difference is None:
            return node
        shifted, greatest = difference.args[:2]
        if not isinstance(greatest, Node) or _sizes(greatest)[-1:] != (1,):  # the same for all that a row is of
            return None
        if greatest.target == operator.getitem:
            self.met.add(greatest)
            greatest = greatest.args[0]
        greatest = self.call(greatest, "max.dim", "amax")
        return None if greatest is None or greatest.args[0] is not shifted else shifted

    def masked(self, node: Any) -> tuple[Node | None, Node | None]:
        """The scores and what hides some of them, if `node` is their sum."""
        total = self.call(node, "add.Tensor")
        readings = (
            reading for reading in matches(_SUM, total) if hidden_by(reading["bias"], self.constants) is not None
        )
        return next(((reading["scores"], reading["bias"]) for reading in readings), (None, None))

    def scaled(self, node: Any) -> tuple[Any, float]:
        """What `node` multiplies by a number, and the number."""
        call, factor = self.call(node, "mul.Tensor", "div.Tensor"), 1.0
        while call is not None:
            number = self.constants.number(call.args[1])
            if not isinstance(number, float | int) or not number:
                break
            factor = factor * number if call.target == aten("mul.Tensor") else factor / number
            node = call.args[0]
            call = self.call(node, "mul.Tensor", "div.Tensor")
        return node, factor


_SUM: Final = op(aten("add.Tensor"), *captured("scores bias"), alpha=1)


def _leaves_the_last_out(node: Node) -> bool:
    """Whether `node` is x[…, :-1]."""
    source, *_ = schema_arguments(node)
    return slice_of(node, source) == (0, shape_of(source)[-1] - 1)


def _of_each_head(node: Any) -> Node | None:
    """What `node`, of shape (batch, heads, rows, 1), repeats: a number for each head."""
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
