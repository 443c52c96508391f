"""Queries and keys that are rotated by their positions -> what was rotated, and the tables by which.

    rotated = x * cos + turned * sin                       Su et al., RoFormer, as transformers writes it
    turned  = cat([-x[…, half:], x[…, :half]])             each element with the one a half further
    turned  = stack([-x[…, 1::2], x[…, ::2]], -1), flat    or with its neighbour: Cohere's and GLM's
    rotated = cat([a * cos - b * sin, b * cos + a * sin])  of the halves a, b; each angle once: GPT-OSS's
    partly  = cat([rotated x[…, :n], x[…, n:]])            GPT-NeoX's and Phi's

cos and sin are functions of the position, computed in the graph for those of each run. What computes them is run here
for all positions that a cache has: tables of shape (positions, half), which onnxruntime's operators look up.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.fx import Node

from delegraph.aot import schema_arguments
from delegraph.aot.authoring import ANY, Bindings, Op, captured, matches, op
from delegraph_onnx.converters.table import aten
from delegraph_onnx.graph_patterns import copied, is_along_the_last_dim, is_last, slice_of, sliced_from
from delegraph_onnx.node_facts import COPIES, rank_of, same_sizes, shape_of
from delegraph_onnx.positions import Constants, Positions, positions_of

__all__ = ["Rotation", "Turn", "doubled_from", "rotation_of", "turns_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """All of `x` rotated: its halves, or with `interleaved` its neighbours, by angles of which `cos` and `sin` are
    functions. Those have each angle twice, as the elements that it rotates lie, or `once`."""

    x: Node
    cos: Node
    sin: Node
    interleaved: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """`source` is rotated, or the first part of each head; row p of the tables, shape (positions, half of what is
    rotated), is for position p."""

    source: Node
    cos: NDArray[np.float32]
    sin: NDArray[np.float32]
    interleaved: bool

    def is_like(self, twin: Rotation) -> bool:
        """Whether both rotate the same elements by the same angles."""
        same_tables = np.array_equal(self.cos, twin.cos) and np.array_equal(self.sin, twin.sin)
        return same_tables and self.interleaved == twin.interleaved


def rotation_of(node: Node, positions: Positions, count: int, constants: Constants) -> Rotation | None:
    """`node`, of shape (batch, heads, length, size), as a rotation of row i by the place `positions` + i, of
    which there are `count`; None if it is none, or one by other places."""
    source, rotated = _parts(node)
    for turn in turns_of(rotated):
        if source is not None and turn.x is not source and slice_of(turn.x, source) != (0, int(shape_of(turn.x)[-1])):
            continue
        cos, sin = (_angle_table(turn, angle, positions, count, constants) for angle in (turn.cos, turn.sin))
        if cos is not None and sin is not None:
            return Rotation(source or turn.x, cos, sin, turn.interleaved)
    return None


def _parts(node: Node) -> tuple[Node | None, Node]:
    """Where `node` is cat([y, source[…, n:]], -1), y having n columns: (source, y); else (None, node)."""
    parts, dim, *_ = schema_arguments(node) if node.target == aten("cat") else ([], 0)
    source = sliced_from(parts[1]) if len(parts) == 2 and is_last(dim, node) else None
    if source is None or slice_of(parts[1], source) != tuple(shape_of(each)[-1] for each in (parts[0], node)):
        return None, node
    return source, parts[0]


def turns_of(node: Node) -> Iterator[Turn]:
    """The readings of `node` as a rotation."""
    for pattern, source_of, interleaved, once in _TURNS:
        for turn in matches(pattern, node):
            x = source_of(turn)
            if x is not None:
                yield Turn(x, turn["cos"], turn["sin"], interleaved, once)


def _add(a: Any, b: Any) -> Op:
    return op(aten("add.Tensor"), a, b, alpha=1)


def _mul(a: Any, b: Any) -> Op:
    return op(aten("mul.Tensor"), a, b)


def _joined(a: Any, b: Any) -> Op:
    return op(aten("cat"), [a, b]).where(is_along_the_last_dim)


def _with_a_last_dim(a: Any) -> Op:
    return op(aten("unsqueeze_copy"), a, ANY).where(is_along_the_last_dim)


_X, _A, _B, _COS, _SIN = captured("x a b cos sin")
_NEG_B: Final = op(aten("neg"), _B)
_NEIGHBOURS: Final = op(aten("view_copy"), _joined(_with_a_last_dim(_NEG_B), _with_a_last_dim(_A)))

_BY_HALVES: Final = _add(_mul(_X, _COS), _mul(_joined(_NEG_B, _A), _SIN))
_BY_NEIGHBOURS: Final = _add(_mul(_X, _COS), _mul(_NEIGHBOURS, _SIN))
_STRAIGHT: Final = op(aten("sub.Tensor"), _mul(_A, _COS), _mul(_B, _SIN), alpha=1)
_EACH_HALF: Final = _joined(_STRAIGHT, _add(_mul(_B, _COS), _mul(_A, _SIN)))


def _of_halves(turn: Bindings) -> Node | None:
    """x, if `a` and `b` are its halves."""
    a, b = turn["a"], turn["b"]
    x: Node | None = turn.captures.get("x", sliced_from(a))
    size = shape_of(x)[-1] if x is not None and rank_of(x) else None
    if x is None or not isinstance(size, int) or size % 2:
        return None
    return x if (slice_of(a, x), slice_of(b, x)) == ((0, size // 2), (size // 2, size)) else None


def _of_neighbours(turn: Bindings) -> Node | None:
    """x, if `a` are its even elements and `b` the odd ones."""
    x, a, b = turn["x"], turn["a"], turn["b"]
    if not rank_of(x) or not same_sizes(shape_of(turn.calls[_NEIGHBOURS]), shape_of(x)):
        return None
    parts = slice_of(a, x, step=2), slice_of(b, x, step=2)
    return x if parts == ((0, shape_of(x)[-1]), (1, shape_of(x)[-1])) else None


_TURNS: Final = (
    (_BY_HALVES, _of_halves, False, False),
    (_BY_NEIGHBOURS, _of_neighbours, True, False),
    (_EACH_HALF, _of_halves, False, True),
)
"""Patterns, what is rotated by such, and of the `Turn` whether it is interleaved, and has each angle once."""


_REPEATED: Final = op(aten("expand_copy"), _with_a_last_dim(*captured("source")), ANY)
_DOUBLED: Final = op(aten("view_copy"), copied(_REPEATED), ANY)


def doubled_from(node: Node) -> Node | None:
    """The node of whose last dim `node` has each element twice, one behind the other, as repeat_interleave gives it."""
    for match in matches(_DOUBLED, node):
        source: Node = match["source"]
        *others, last = shape_of(source) or (0,)
        twice = same_sizes(shape_of(match.calls[_REPEATED]), [*others, last, 2])
        if isinstance(last, int) and twice and same_sizes(shape_of(node), [*others, 2 * last]):
            return source
    return None


# ---- tables -------------------------------------------------------------------------------------------------------


def _angle_table(
    turn: Turn, angle: Node, positions: Positions, count: int, constants: Constants
) -> NDArray[np.float32] | None:
    """The values of `angle`, of shape (1, 1, length, size), at each place, each angle once."""
    values = _Table(positions, count, constants).of(angle)
    if values is None or values.dtype != torch.float32 or tuple(values.shape[:-2]) not in ((1, 1), (1,), ()):
        return None
    if values.ndim < 2 or values.shape[-2] != count:  # a table of the run's rows, or one row for all
        return None
    table = values.reshape(count, values.shape[-1]).numpy()
    if turn.once:
        return table
    half, twin = (table[:, ::2], table[:, 1::2]) if turn.interleaved else np.array_split(table, 2, axis=1)
    return np.ascontiguousarray(half) if np.array_equal(half, twin) else None


class _Table:
    """Computes nodes that depend on nothing but constants and the places, at all `count` places instead of a run's."""

    def __init__(self, positions: Positions, count: int, constants: Constants) -> None:
        self.positions, self.count, self.constants = positions, count, constants

    def of(self, node: Any) -> torch.Tensor | None:
        """The tensor, with all places along the dim in which the run's were; None: it depends on something else."""
        if isinstance(node, int | float):
            return torch.tensor(node)
        if node in self.constants:
            return self.constants[node]
        known = positions_of(node, self.constants)
        if known is not None and known.dim is not None:
            shape = [1] * rank_of(node)
            shape[known.dim] = self.count
            return torch.arange(self.count).reshape(shape) if known.begins_like(self.positions) else None
        doubled = doubled_from(node)
        if doubled is not None:
            once = self.of(doubled)
            return None if once is None else once.repeat_interleave(2, -1)
        rule = _RULES.get(node.target) if node.op == "call_function" else None
        if rule is None:
            return None
        sources = [self.of(read) for read in node.all_input_nodes]
        if any(source is None for source in sources):
            return None
        try:
            return rule(node, dict(zip(node.all_input_nodes, sources, strict=True)))
        except RuntimeError:  # a constant has as many rows as the run, and not as there are places
            return None


def _elementwise(function: Callable[..., torch.Tensor]) -> Callable[[Node, Any], torch.Tensor]:
    return lambda node, values: function(*(values.get(read, read) for read in node.args))


_RULES: Final[dict[object, Callable[[Node, Any], torch.Tensor]]] = {
    aten("mul.Tensor"): _elementwise(operator.mul),
    aten("cos"): _elementwise(torch.cos),
    aten("sin"): _elementwise(torch.sin),
    aten("unsqueeze_copy"): lambda node, values: values[node.args[0]].unsqueeze(node.args[1]),
    aten("slice_copy.Tensor"): lambda node, values: aten("slice.Tensor")(values[node.args[0]], *node.args[1:]),
    aten("cat"): lambda node, values: torch.cat([values[part] for part in node.args[0]], *node.args[1:]),  # type: ignore[union-attr, arg-type]
    **dict.fromkeys(COPIES, lambda node, values: values[node.args[0]].to(node.meta["val"].dtype)),
}
"""How each is computed that keeps the places apart: none of these mixes what lies along one of the other dims."""
