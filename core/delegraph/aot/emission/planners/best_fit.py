"""Tensors of one memory -> offsets: one after the other, each into the tightest gap between those alive together with
it (best fit).

The order decides, as here, where 64 bytes are the most that is alive at one time:

    step   0 1 2          in order of birth                     by size
    a 16   ---            a at 0, b at 16; c does not fit       c at 0, b at 48, a at 0
    b 16     ---          into a's place: c at 32               64 bytes
    c 48       -          80 bytes
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from delegraph.aot.emission.planners.one_memory import OneMemory

__all__ = ["PAIR_BUDGET", "conflicts_of", "orders", "place"]

PAIR_BUDGET: Final = 3_000_000
"""Pairs of tensors alive together that a planner may look at; above it only the linear sweep runs (about 3 s)."""


def orders(memory: OneMemory) -> Iterator[list[int]]:
    """The orders that are tried: the largest first, the largest in bytes times steps, the longest alive; ties go by
    birth and position, so that they are the same everywhere."""
    sizes, firsts = memory.sizes, memory.firsts
    steps = [last - first + 1 for first, last in zip(firsts, memory.lasts, strict=True)]
    keys: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (-sizes[i], firsts[i], i),
        lambda i: (-sizes[i] * steps[i], i),
        lambda i: (-steps[i], -sizes[i], i),
    )
    yield from (sorted(range(len(sizes)), key=key) for key in keys)


def conflicts_of(memory: OneMemory) -> list[list[int]]:
    """For each tensor, those that are alive together with it."""
    conflicts: list[list[int]] = [[] for _ in memory.sizes]
    live: list[int] = []
    for i in sorted(range(len(memory.sizes)), key=lambda i: (memory.firsts[i], i)):
        if memory.sizes[i] == 0:
            continue
        live = [j for j in live if memory.lasts[j] >= memory.firsts[i]]
        for j in live:
            conflicts[i].append(j)
            conflicts[j].append(i)
        live.append(i)
    return conflicts


def place(memory: OneMemory, conflicts: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """Each in `order` into the tightest gap that its conflicts leave, else behind them (best fit)."""
    sizes = memory.sizes
    offsets = [-1] * len(sizes)
    for i in order:
        size = sizes[i]
        taken = sorted((offsets[j], offsets[j] + sizes[j]) for j in conflicts[i] if offsets[j] >= 0)
        best, best_gap, end = -1, 0, 0
        for start, stop in taken:
            gap = start - end
            if gap >= size and (best < 0 or gap < best_gap):
                best, best_gap = end, gap
            if stop > end:
                end = stop
        offsets[i] = best if best >= 0 else end
    return offsets
