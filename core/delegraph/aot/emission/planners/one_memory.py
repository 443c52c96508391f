"""Lifetimes -> a plan, one memory at a time: a planner has to say only how the tensors of one memory are laid out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from delegraph.interfaces.memory_planner import Lifetime, Plan

__all__ = [
    "MemoryLayout",
    "OneMemory",
    "height",
    "lay_out",
    "most_alive",
    "most_alive_together",
    "overlapping_pairs",
    "part_of",
    "plan_memories",
    "reversed_in_time",
]


@dataclass(frozen=True, slots=True)
class OneMemory:
    """The tensors of one memory id, as parallel lists; sizes are aligned. `lower_bound`: the most that is alive at one
    time."""

    sizes: Sequence[int]
    firsts: Sequence[int]
    lasts: Sequence[int]
    lower_bound: int
    alignment: int = 1


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """An offset for each tensor of a memory; `lower_bound`: bytes that no layout of them can undercut."""

    offsets: Sequence[int]
    lower_bound: int


def plan_memories(lifetimes: Sequence[Lifetime], alignment: int, planner: Callable[[OneMemory], MemoryLayout]) -> Plan:
    """The plan that `planner` makes, memory by memory."""
    by_memory: dict[int, list[int]] = defaultdict(list)
    for index, lifetime in enumerate(lifetimes):
        by_memory[lifetime.memory_id].append(index)
    offsets = [0] * len(lifetimes)
    buffer_sizes = [0] * (max(by_memory, default=1) + 1)
    lower_bound = 0
    for memory_id, indices in by_memory.items():
        memory = _one_memory([lifetimes[i] for i in indices], alignment)
        layout = planner(memory)
        for index, offset in zip(indices, layout.offsets, strict=True):
            offsets[index] = offset
        buffer_sizes[memory_id] = height(memory, layout.offsets)
        lower_bound += layout.lower_bound
    return Plan(tuple(offsets), tuple(buffer_sizes), lower_bound)


Heuristic: TypeAlias = Callable[[OneMemory], Sequence[int]]
"""Offsets for the tensors of one memory."""


def lay_out(lifetimes: Sequence[Lifetime], alignment: int, heuristic: Heuristic) -> Plan:
    """The plan of a planner that proves nothing about its offsets."""
    return plan_memories(lifetimes, alignment, lambda memory: MemoryLayout(heuristic(memory), memory.lower_bound))


def height(memory: OneMemory, offsets: Sequence[int]) -> int:
    """The bytes that a layout takes."""
    return max((o + s for o, s in zip(offsets, memory.sizes, strict=True)), default=0)


def part_of(memory: OneMemory, indices: Sequence[int]) -> OneMemory:
    """Some of the tensors by themselves."""
    sizes, firsts, lasts = ([column[i] for i in indices] for column in (memory.sizes, memory.firsts, memory.lasts))
    return OneMemory(sizes, firsts, lasts, most_alive(sizes, firsts, lasts), memory.alignment)


def reversed_in_time(memory: OneMemory) -> OneMemory:
    """The same tensors with births and deaths swapped; a layout of these is one of the others."""
    firsts, lasts = [-last for last in memory.lasts], [-first for first in memory.firsts]
    return OneMemory(memory.sizes, firsts, lasts, memory.lower_bound, memory.alignment)


def overlapping_pairs(memory: OneMemory) -> int:
    """How many pairs of tensors are alive together, counted at the birth of the later one."""
    firsts, lasts = sorted(memory.firsts), sorted(memory.lasts)
    pairs = dead = 0
    for born, first in enumerate(firsts):
        while lasts[dead] < first:
            dead += 1
        pairs += born - dead
    return pairs


def _one_memory(lifetimes: Sequence[Lifetime], alignment: int) -> OneMemory:
    sizes = [-(-lifetime.nbytes // alignment) * alignment for lifetime in lifetimes]
    firsts = [lifetime.first for lifetime in lifetimes]
    lasts = [lifetime.last for lifetime in lifetimes]
    return OneMemory(sizes, firsts, lasts, most_alive(sizes, firsts, lasts), alignment)


def most_alive_together(lifetimes: Sequence[Lifetime], alignment: int) -> int:
    """The most that is alive at one time in each memory, all of these together."""
    return lay_out(lifetimes, alignment, lambda memory: [0] * len(memory.sizes)).lower_bound


def most_alive(sizes: Sequence[int], firsts: Sequence[int], lasts: Sequence[int]) -> int:
    """The largest sum of sizes that are alive at one time."""
    change: dict[int, int] = defaultdict(int)
    for size, first, last in zip(sizes, firsts, lasts, strict=True):
        change[first] += size
        change[last + 1] -= size
    live = peak = 0
    for step in sorted(change):
        live += change[step]
        peak = max(peak, live)
    return peak
