"""Lifetimes -> a plan: the best of several heuristics, the cheap ones first; the default.

It stops as soon as a plan reaches the lower bound, the largest sum of bytes that are alive at one time, which no plan
can undercut. For most programs the first does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from delegraph.aot.emission.planners.best_fit import PAIR_BUDGET, conflicts_of, orders, place
from delegraph.aot.emission.planners.hill_climb import hill_climb
from delegraph.aot.emission.planners.one_memory import (
    OneMemory,
    height,
    lay_out,
    overlapping_pairs,
    reversed_in_time,
)
from delegraph.aot.emission.planners.shared_objects import shared_objects
from delegraph.aot.emission.planners.sweep import sweep
from delegraph.interfaces.memory_planner import Lifetime, Plan

__all__ = ["greedy", "portfolio"]


def greedy(lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
    """The best of several heuristics; deterministic, and near-linear in the number of tensors."""
    return lay_out(lifetimes, alignment, portfolio)


def portfolio(memory: OneMemory) -> Sequence[int]:
    """The lowest of: sweeps forwards and backwards, best fit in several orders, shared objects, hill climbing."""
    best: Sequence[int] | None = None
    for offsets in _candidates(memory):
        if best is None or height(memory, offsets) < height(memory, best):
            best = offsets
        if height(memory, best) <= memory.lower_bound:
            break
    assert best is not None
    return best


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
