"""A tensor's dims in the program <-> n, h, w, c: which dim lies where, and the moves between two such orders.

Images are NCHW in the program and NHWC here; features, [m, k], have their rows in h and their features in c; all else
lies as in the program. A permutation in the program is another order of the same integers: nothing moves until an
operator needs its operand in an order of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from delegraph_npu.aot.ir import Laid, Order, Shape

__all__ = ["IMAGES", "MATRICES", "in_rows", "keeps_place", "move", "permuted", "placed", "raised", "rows"]

_ROWS: Final[dict[int, Order]] = {
    0: (None, None, None, None),
    1: (None, None, None, 0),
    2: (None, 0, None, 1),
    3: (0, 1, None, 2),
    4: (0, 1, 2, 3),
}
IMAGES: Final[dict[int, Order]] = {3: (0, None, 2, 1), 4: (0, 2, 3, 1)}
"""Rank -> the order in which convolutions and pools need batch, channels and places."""

MATRICES: Final[dict[int, Order]] = {2: (None, None, 0, 1), 3: (0, None, 1, 2), 4: (0, 1, 2, 3)}
"""Rank -> the order in which products of matrices need rows and columns."""


def rows(rank: int) -> Order:
    """The order in which a tensor of `rank` lies as in the program, its last dim in c."""
    return _ROWS[rank]


def raised(laid: Laid, rank: int) -> Laid:
    """`laid` with leading dims of one element up to `rank`, as broadcasting sees it."""
    more = rank - len(laid.shape)
    leading = iter(range(more))
    n, h, w, c = (next(leading, None) if dim is None else dim + more for dim in laid.order)
    return replace(laid, shape=(1,) * more + laid.shape, order=(n, h, w, c))


def permuted(laid: Laid, dims: list[int]) -> Laid:
    """`laid` with the program's dims in the order `dims`; nothing moves."""
    n, h, w, c = (None if dim is None else dims.index(dim) for dim in laid.order)
    return replace(laid, shape=tuple(laid.shape[dim] for dim in dims), order=(n, h, w, c))


def placed(shape: tuple[int, ...], order: Order) -> Shape:
    """The sizes of n, h, w and c for a tensor that has `shape` in the program."""
    n, h, w, c = (1 if dim is None else int(shape[dim]) for dim in order)
    return n, h, w, c


def move(source: Order, target: Order) -> tuple[int, int, int, int]:
    """For each of n, h, w, c of the target, the one of the source with the same dim. Dims of one element lie
    anywhere."""
    known = {dim: axis for axis, dim in enumerate(source) if dim is not None}
    taken = {known[dim] for dim in target if dim in known}
    free = iter([axis for axis in range(4) if axis not in taken])
    n, h, w, c = (known[dim] if dim in known else next(free) for dim in target)
    return n, h, w, c


def keeps_place(shape: Shape, moved: tuple[int, int, int, int]) -> bool:
    """Whether a move leaves all elements where they are: the axes that have several elements stay in order."""
    several = [axis for axis in moved if shape[axis] > 1]
    return several == sorted(several)


def in_rows(laid: Laid) -> bool:
    """Whether the elements lie in memory as in the program."""
    return keeps_place(laid.tensor.shape, move(laid.order, rows(len(laid.shape))))
