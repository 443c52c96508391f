"""Things that fail together -> those of them that cannot be fewer: Zeller's delta debugging, behind two bisections.

a b c d e f g h      fails
a b c d e            the shortest beginning that fails     three trials
      d e            without what need not come before     three trials
      d e            and nothing of the rest can be left out
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["smallest"]

_T = TypeVar("_T")


def smallest(things: Sequence[_T], fails: Callable[[Sequence[_T]], bool]) -> list[_T]:
    """Some of `things`, in their order, that fail, and no more do if any of them is left out.

    All of `things` fail; none at all is never asked about. Without `n` things that matter and lie side by side, about
    `2 log2(len(things))` trials; at worst their square.
    """
    rest = list(things)
    end = _least(len(rest), lambda count: fails(rest[:count]))
    rest = rest[:end]
    count = _least(len(rest), lambda count: fails(rest[-count:]))
    rest = rest[-count:]
    size = len(rest) // 2
    while size:
        shorter = _without_pieces(rest, size, fails)
        size = size // 2 if size > 1 or len(shorter) == len(rest) else 1
        rest = shorter
    return rest


def _least(count: int, fails: Callable[[int], bool]) -> int:
    """A number up to `count`, which fails, that fails while the next smaller one does not; 0 never does."""
    works = 0
    while count - works > 1:
        middle = (works + count) // 2
        if fails(middle):
            count = middle
        else:
            works = middle
    return count


def _without_pieces(things: list[_T], size: int, fails: Callable[[Sequence[_T]], bool]) -> list[_T]:
    """`things` without those pieces of `size` without which they fail."""
    start = 0
    while start < len(things):
        fewer = things[:start] + things[start + size :]
        if fewer and fails(fewer):
            things = fewer
        else:
            start += size
    return things
