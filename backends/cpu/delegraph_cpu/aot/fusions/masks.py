"""Masks of attention -> which places each row sees: those up to its own, or of these the last few.

columns <= rows                rows >= columns, columns < rows + 1, ~(columns > rows), columns - rows <= 0
columns > rows - window        rows - columns < window
triangle[places]               triangle[start: start + n], for triangle = tril(ones(n, n))
where(mask, 0, -inf)           what such a mask adds to the scores
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch.fx import Node

from delegraph.aot import schema_arguments
from delegraph.aot.authoring import Constants
from delegraph_onnx.converters.table import aten
from delegraph_onnx.node_facts import COPIES, in_words, shape_of
from delegraph_onnx.positions import Positions, positions_of, same_value

__all__ = ["Mask", "hidden_by", "mask_of"]


@dataclass(frozen=True, slots=True)
class Mask:
    """Row i may see the columns up to `rows` + i, and of these the last `window`; None: all."""

    rows: Positions
    window: int | None = None


@dataclass(frozen=True, slots=True)
class _Limit:
    """The columns up to `border`, or with `above` those behind it."""

    border: Positions
    above: bool


def mask_of(node: Node, constants: Constants) -> Mask | None:
    """A mask (…, rows, columns) that looks back from each row, of bools or of numbers that are added to scores; None of
    another mask."""
    limits = [_limit(condition, negated, constants) for condition, negated in _conditions(node, constants)]
    upper = [limit.border for limit in limits if limit is not None and not limit.above]
    lower = [limit.border for limit in limits if limit is not None and limit.above]
    if None in limits or len(upper) != 1 or len(lower) > 1:
        return None
    [last] = upper
    if not lower:
        return Mask(last)
    [border] = lower
    window = last.offset - border.offset
    return Mask(last, window) if window > 0 and same_value(border.start, last.start) else None


def hidden_by(bias: Node, constants: Constants) -> tuple[Node, bool] | None:
    """Of what is added to scores, where(mask, 0, lowest) or where(mask, lowest, 0): the mask, and whether it says what
    is hidden."""
    if bias.target != aten("where.self"):
        return None
    mask, *added = bias.args
    values = [constants.number(value) for value in added]
    for negated, (seen, hidden) in enumerate((values, values[::-1])):
        if seen == 0 and isinstance(hidden, float) and hidden <= _HIDDEN:
            return mask, bool(negated)
    return None


_HIDDEN: Final = -1e9
"""A number that is added to a score and is no larger hides the place."""


# ---- what has to hold ---------------------------------------------------------------------------------------------


def _conditions(node: Node, constants: Constants, negated: bool = False) -> Iterator[tuple[Node, bool]]:
    """The conditions that all have to hold, or with True beside it must not, without those that always do."""
    node = _in_front(node)
    hidden = hidden_by(node, constants)
    if hidden is not None:
        yield from _conditions(hidden[0], constants, negated != hidden[1])
    elif node.target in _NOT:
        yield from _conditions(node.args[0], constants, not negated)  # type: ignore[arg-type]
    elif node.target in (_OR if negated else _AND):
        for part in node.args[:2]:
            yield from _conditions(part, constants, negated)  # type: ignore[arg-type]
    elif node.target != aten("full") or node.args[1] is not (not negated):
        yield node, negated


_NOT: Final = frozenset({aten("logical_not"), aten("bitwise_not")})
_AND: Final = frozenset({aten("logical_and"), aten("bitwise_and.Tensor")})
_OR: Final = frozenset({aten("logical_or"), aten("bitwise_or.Tensor")})


def _in_front(node: Node) -> Node:
    """The node that `node` copies, repeats or shows with more dims, the last two being the same."""
    while node.target in _SHOWING and isinstance(source := node.args[0], Node) and _matrix(source) == _matrix(node):
        node = source
    return node


_VIEWS: Final = ("unsqueeze", "unsqueeze_copy", "view", "view_copy", "expand", "expand_copy")
_SHOWING: Final = COPIES | set(map(aten, _VIEWS))


def _matrix(node: Node) -> tuple[int | str, ...]:
    """Rows and columns."""
    return in_words([1, 1, *shape_of(node)][-2:])


# ---- one condition ------------------------------------------------------------------------------------------------


def _limit(node: Node, negated: bool, constants: Constants) -> _Limit | None:
    """The columns that a comparison with rows, or a triangle, lets each row see."""
    compared = _COMPARISONS.get(node.target)  # type: ignore[call-overload]
    if compared is None:
        return None if negated else _rows_of_a_triangle(node, constants)
    left, right = _sides(node, constants)
    if left is None or right is None:
        return None
    above, more = _LIMITS[compared]
    if left.dim != -1:
        left, right, above, more = right, left, not above, -1 - more
    if left.dim != -1 or left.start is not None:
        return None
    border = replace(right, offset=right.offset - left.offset + more)
    return _of_rows(border, node, above != negated)


_COMPARISONS: Final = {
    aten(f"{name}.{kind}"): name for name in ("le", "lt", "ge", "gt") for kind in ("Tensor", "Scalar")
}
_LIMITS: Final = {"le": (False, 0), "lt": (False, -1), "gt": (True, 0), "ge": (True, -1)}
"""Whether columns that compare so to a border lie above, and what is added for them to be up to it, or behind it."""


def _sides(node: Node, constants: Constants) -> tuple[Positions | None, Positions | None]:
    """Both sides of a comparison; of `a - b < n` a and b + n."""
    left, right = node.args[:2]
    for difference, number, swapped in ((left, right, False), (right, left, True)):
        by = positions_of(number, constants.tensors)
        if by is None or by.start is not None or by.dim is not None or not isinstance(difference, Node):
            continue
        if difference.target != aten("sub.Tensor") or difference.kwargs:
            continue
        a, b = (positions_of(part, constants.tensors) for part in difference.args[:2])
        if b is not None:
            b = replace(b, offset=b.offset + by.offset)
        return (b, a) if swapped else (a, b)
    return positions_of(left, constants.tensors), positions_of(right, constants.tensors)


def _of_rows(border: Positions, node: Node, above: bool) -> _Limit | None:
    """One for each row of `node`: counting up along the rows, or the only row's."""
    if border.dim is None and _matrix(node)[0] == 1:
        border = replace(border, dim=-2)
    return _Limit(border, above) if border.dim == -2 else None


def _rows_of_a_triangle(node: Node, constants: Constants) -> _Limit | None:
    """Rows of a square in which each row sees the columns up to its own: from a place on, or those at places."""
    if node.target not in (*_SLICES, *_INDEXING) or not isinstance(node.args[0], Node):
        return None
    if not _is_triangle(constants.tensors.get(node.args[0])):
        return None
    if node.target in _INDEXING:
        indices = [index for index in node.args[1] if index is not None]  # type: ignore[union-attr]
        places = positions_of(indices[0], constants.tensors) if len(indices) == 1 == len(node.args[1]) else None  # type: ignore[arg-type]
        if places is None or places.dim not in (None, -1):
            return None
        return _of_rows(replace(places, dim=None if places.dim is None else -2), node, False)
    _, dim, start, _, step = schema_arguments(node)
    if dim not in (0, -2) or step != 1:
        return None
    first = start or 0
    return _Limit(Positions(offset=first, dim=-2) if isinstance(first, int) else Positions(start=first, dim=-2), False)


_SLICES: Final = (aten("slice.Tensor"), aten("slice_copy.Tensor"))
_INDEXING: Final = (aten("index.Tensor"),)


def _is_triangle(square: torch.Tensor | None) -> bool:
    """Whether it is of bools, or adds what these do, and lets each row see the columns up to its own."""
    if square is None or square.ndim != 2 or square.shape[0] != square.shape[1]:
        return False
    seen = square
    if square.is_floating_point():
        seen = square == 0
        if not bool((square[~seen] <= _HIDDEN).all()):
            return False
    return seen.dtype == torch.bool and torch.equal(seen, torch.ones_like(seen).tril())
