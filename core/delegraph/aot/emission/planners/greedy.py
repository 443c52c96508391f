"""Lifetimes -> a plan: the best of several heuristics, the cheap ones first; the default.

It stops as soon as a plan reaches the lower bound, the largest sum of bytes that are alive at one time, which no plan
can undercut. For most programs the first does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from delegraph.aot.emission.planners.best_fit import PAIR_BUDGET, conflicts_of, orders, place
from delegraph.aot.emission.planners.hill_climb import hill_climb
from delegraph.aot.emission.planners.one_memory import (
    OneMemory,
    height,
    lay_out,
    overlapping_pairs,
    part_of,
    reversed_in_time,
)
from delegraph.aot.emission.planners.shared_objects import shared_objects
from delegraph.aot.emission.planners.stack import Stack, Work
from delegraph.aot.emission.planners.sweep import sweep
from delegraph.deprecation import warn_deprecated
from delegraph.interfaces.memory_planner import Lifetime, Plan

__all__ = ["best_fit", "greedy", "portfolio"]

CLOSE_ENOUGH: Final = 0.02
"""A plan that is larger than the lower bound by no more than this part of it is not searched on."""

SEARCH_BUDGET: Final = 1_000_000
"""Tensors that the search for such a plan may look at (about 0.3 s)."""


def greedy(lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
    """The best of several heuristics; deterministic, and near-linear in the number of tensors."""
    return lay_out(lifetimes, alignment, portfolio)


def best_fit(lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
    """`greedy` by the name of one of its heuristics, which was a planner of its own and never better."""
    warn_deprecated("memory planner 'best_fit'", "'greedy', which tries it among others", "2.0")
    return greedy(lifetimes, alignment)


def portfolio(memory: OneMemory) -> Sequence[int]:
    """The lowest of: sweeps forwards and backwards, best fit in several orders, shared objects, hill climbing; where
    that is far from the lower bound, a short search."""
    best: Sequence[int] | None = None
    for offsets in _candidates(memory):
        if best is None or height(memory, offsets) < height(memory, best):
            best = offsets
        if height(memory, best) <= memory.lower_bound:
            break
    assert best is not None
    return best if height(memory, best) <= _enough(memory) else _stacked(memory, best)


def _enough(memory: OneMemory) -> int:
    return int(memory.lower_bound * (1 + CLOSE_ENOUGH))


def _stacked(memory: OneMemory, best: Sequence[int]) -> Sequence[int]:
    """The first layout close to the lower bound that a short search meets, else `best`; `search.py` goes on from it."""
    if overlapping_pairs(memory) > PAIR_BUDGET:
        return best
    indices = [i for i, size in enumerate(memory.sizes) if size]
    part = part_of(memory, indices)
    layout = Stack(part, conflicts_of(part)).below(_enough(memory), Work(SEARCH_BUDGET), SEARCH_BUDGET)
    if not isinstance(layout, list):
        return best
    offsets = dict(zip(indices, layout, strict=True))
    return [offsets.get(i, 0) for i in range(len(memory.sizes))]


def _candidates(memory: OneMemory) -> Iterator[Sequence[int]]:
    yield sweep(memory)
    yield sweep(reversed_in_time(memory))
    if overlapping_pairs(memory) > PAIR_BUDGET:
        return
    conflicts = conflicts_of(memory)
    by_size, *others = orders(memory)
    for order in (by_size, *others):
        yield place(memory, conflicts, order)
    yield shared_objects(memory, conflicts)
    yield hill_climb(memory, conflicts, by_size)
