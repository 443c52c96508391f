"""Lifetimes -> a plan and its proof: branch and bound, from the best heuristic's plan down to the lower bound.

Tensors that no chain of common steps connects are searched apart, and only where the heuristics left a gap. Each part
asks `stack.py` for a layout below a limit; an answer, yes or no, halves the gap. A limit that is proven impossible
raises the bound: a plan that is as high as the bound is the best. Work is counted, never timed, so that one program has
one plan on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from delegraph.aot.emission.planners.best_fit import PAIR_BUDGET, conflicts_of
from delegraph.aot.emission.planners.greedy import portfolio
from delegraph.aot.emission.planners.one_memory import (
    MemoryLayout,
    OneMemory,
    height,
    overlapping_pairs,
    part_of,
    plan_memories,
)
from delegraph.aot.emission.planners.stack import Answer, Stack, Work
from delegraph.interfaces.memory_planner import Lifetime, Plan

__all__ = ["search"]

BUDGET: Final = 6_000_000
"""Tensors that the search of one memory may look at, all its parts together (about 2 s)."""

SLICE: Final = 1_000_000
"""The part of these that one question may take before an easier one is asked."""


def search(lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
    """A plan that is never above that of `greedy`. No plan can undercut its `lower_bound`, which search has proven
    where it is above the bytes that are alive at one time."""
    return plan_memories(lifetimes, alignment, _search)


def _search(memory: OneMemory) -> MemoryLayout:
    offsets = list(portfolio(memory))
    bound = memory.lower_bound
    if height(memory, offsets) <= bound or overlapping_pairs(memory) > PAIR_BUDGET:
        return MemoryLayout(offsets, bound)
    work = Work(BUDGET)
    for indices in _parts(memory):
        part = part_of(memory, indices)
        layout = _improve(part, [offsets[i] for i in indices], memory.lower_bound, work)
        bound = max(bound, layout.lower_bound)
        for index, offset in zip(indices, layout.offsets, strict=True):
            offsets[index] = offset
    return MemoryLayout(offsets, bound)


def _improve(part: OneMemory, offsets: Sequence[int], goal: int, work: Work) -> MemoryLayout:
    """A lower layout of `part` than `offsets`, down to `goal`; the bound of `part`, by proof where it is above that.

    goal                      proven          asked next       the best so far
     |--------------------------|-----------------|------------------|
            no layout                   not known             `best`
    """
    best, bound, low = offsets, part.lower_bound, goal
    if height(part, best) <= goal:
        return MemoryLayout(best, bound)
    stack, limit = Stack(part, conflicts_of(part)), goal
    while (top := height(part, best)) > low and work.left > 0:
        answer = stack.below(limit, work, SLICE)
        if isinstance(answer, list):
            best, top = answer, height(part, answer)
        else:
            low = limit + part.alignment
        if answer is Answer.IMPOSSIBLE:
            bound = max(bound, low)
        limit = low + (top - low) // 2 // part.alignment * part.alignment
    return MemoryLayout(best, bound)


def _parts(memory: OneMemory) -> Iterator[list[int]]:
    """Tensors by stretches of time in which somebody is always alive; what takes no bytes is left out."""
    part: list[int] = []
    end = 0
    for i in sorted((i for i, size in enumerate(memory.sizes) if size), key=lambda i: (memory.firsts[i], i)):
        if part and memory.firsts[i] > end:
            yield part
            part = []
        end = max(end, memory.lasts[i]) if part else memory.lasts[i]
        part.append(i)
    if part:
        yield part
