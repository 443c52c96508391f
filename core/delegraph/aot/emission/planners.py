"""Lifetimes -> places in memory: the planners behind the entry points `delegraph.memory_planners`; no torch.

A planner is a function `(lifetimes, alignment) -> Plan`. `greedy` is the default: a portfolio that stops as soon as a
plan reaches the lower bound, the largest sum of bytes that are alive at one time, which no plan can undercut.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Final, TypeAlias

from delegraph.interfaces.memory_planner import Lifetime, Plan

__all__ = ["greedy", "naive"]

PAIR_BUDGET: Final = 3_000_000
"""Pairs of tensors alive together that a planner may look at; above it only the linear sweep runs (about 3 s)."""

CLIMB_BUDGET: Final = 400_000
"""Pairs that hill climbing may look at (about 0.2 s)."""

CLIMB_ROUNDS: Final = 30
"""Swaps that hill climbing may try per tensor; small problems need no more."""

CLOSE_ENOUGH: Final = 0.005
"""Hill climbing stops at a plan that is larger than the lower bound by this part of it."""


def naive(lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
    """Everything in a place of its own: nothing is ever reused."""
    return _plan_memories(lifetimes, alignment, _stack)


def greedy(lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
    """The best of several heuristics; deterministic, and near-linear in the number of tensors."""
    return _plan_memories(lifetimes, alignment, _portfolio)


# ---- one memory ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Memory:
    """The tensors of one memory id, as parallel lists; sizes are aligned."""

    sizes: list[int]
    firsts: list[int]
    lasts: list[int]
    lower_bound: int


_Planner: TypeAlias = Callable[[_Memory], list[int]]


def _plan_memories(lifetimes: Sequence[Lifetime], alignment: int, planner: _Planner) -> Plan:
    by_memory: dict[int, list[int]] = defaultdict(list)
    for index, lifetime in enumerate(lifetimes):
        by_memory[lifetime.memory_id].append(index)
    offsets = [0] * len(lifetimes)
    buffer_sizes = [0] * (max(by_memory, default=1) + 1)
    lower_bound = 0
    for memory_id, indices in by_memory.items():
        memory = _memory([lifetimes[i] for i in indices], alignment)
        placed = planner(memory)
        for index, offset in zip(indices, placed, strict=True):
            offsets[index] = offset
        buffer_sizes[memory_id] = _height(memory, placed)
        lower_bound += memory.lower_bound
    return Plan(tuple(offsets), tuple(buffer_sizes), lower_bound)


def _memory(lifetimes: Sequence[Lifetime], alignment: int) -> _Memory:
    sizes = [-(-lifetime.nbytes // alignment) * alignment for lifetime in lifetimes]
    firsts = [lifetime.first for lifetime in lifetimes]
    lasts = [lifetime.last for lifetime in lifetimes]
    change: dict[int, int] = defaultdict(int)
    for size, first, last in zip(sizes, firsts, lasts, strict=True):
        change[first] += size
        change[last + 1] -= size
    live = peak = 0
    for step in sorted(change):
        live += change[step]
        peak = max(peak, live)
    return _Memory(sizes, firsts, lasts, peak)


def _height(memory: _Memory, offsets: Sequence[int]) -> int:
    return max((o + s for o, s in zip(offsets, memory.sizes, strict=True)), default=0)


def _stack(memory: _Memory) -> list[int]:
    offsets, end = [], 0
    for size in memory.sizes:
        offsets.append(end)
        end += size
    return offsets


def _portfolio(memory: _Memory) -> list[int]:
    """The lowest of: sweeps forwards and backwards, best fit in several orders, shared objects, hill climbing."""
    best: list[int] | None = None
    for offsets in _candidates(memory):
        if best is None or _height(memory, offsets) < _height(memory, best):
            best = offsets
        if _height(memory, best) <= memory.lower_bound:
            break
    assert best is not None
    return best


def _candidates(memory: _Memory) -> Iterator[list[int]]:
    """Plans, the cheap ones first; whoever asks stops at the lower bound, which the first reaches for most programs.

    Where it does not, as here (lower bound 64), the order is what counts:

        step   0 1 2          in order of birth                     by size
        a 16   ---            a at 0, b at 16; c does not fit       c at 0, b at 48, a at 0
        b 16     ---          into a's place: c at 32               64 bytes
        c 48       -          80 bytes
    """
    yield _sweep(memory)
    yield _sweep(_reversed(memory))
    pairs = _overlapping_pairs(memory)
    if pairs > PAIR_BUDGET:
        return
    conflicts = _conflicts(memory)
    count = range(len(memory.sizes))
    by_size = sorted(count, key=lambda i: (-memory.sizes[i], memory.firsts[i], i))
    by_area = sorted(count, key=lambda i: (-memory.sizes[i] * (memory.lasts[i] - memory.firsts[i] + 1), i))
    by_life = sorted(count, key=lambda i: (memory.firsts[i] - memory.lasts[i], -memory.sizes[i], i))
    for order in (by_size, by_area, by_life):
        yield _place(memory, conflicts, order)
    yield _shared_objects(memory, conflicts)
    yield _hill_climb(memory, conflicts, by_size)


def _sweep(memory: _Memory) -> list[int]:
    """Best fit in the order of birth over a list of free blocks, as an allocator at run time would; near-linear."""
    sizes, firsts, lasts = memory.sizes, memory.firsts, memory.lasts
    offsets = [0] * len(sizes)
    births = sorted(range(len(sizes)), key=lambda i: (firsts[i], firsts[i] - lasts[i], -sizes[i], i))
    deaths = sorted(range(len(sizes)), key=lambda i: (lasts[i], i))
    free = _FreeList()
    dead = 0
    for i in births:
        while lasts[deaths[dead]] < firsts[i]:
            free.give(offsets[deaths[dead]], sizes[deaths[dead]])
            dead += 1
        offsets[i] = free.take(sizes[i])
    return offsets


class _FreeList:
    """Free blocks below a growing end, findable by place and by size."""

    def __init__(self) -> None:
        self._end = 0
        self._by_start: dict[int, int] = {}  # start -> size
        self._by_end: dict[int, int] = {}  # end -> size
        self._by_size: list[tuple[int, int]] = []  # (size, start), sorted

    def take(self, size: int) -> int:
        """The start of the smallest free block that holds `size`, or of new space at the end."""
        if size == 0:
            return 0
        at = bisect_left(self._by_size, (size, -1))
        if at < len(self._by_size):
            block, start = self._by_size[at]
            self._remove(start, block)
            if block > size:
                self._add(start + size, block - size)
            return start
        # The last block may touch the end: grow it, rather than leave it behind.
        start = self._end - self._by_end.get(self._end, 0)
        if start < self._end:
            self._remove(start, self._end - start)
        self._end = start + size
        return start

    def give(self, start: int, size: int) -> None:
        """Return a block; it is joined with free neighbours."""
        if size == 0:
            return
        before = self._by_end.get(start, 0)
        if before:
            self._remove(start - before, before)
        after = self._by_start.get(start + size, 0)
        if after:
            self._remove(start + size, after)
        self._add(start - before, before + size + after)

    def _add(self, start: int, size: int) -> None:
        self._by_start[start] = size
        self._by_end[start + size] = size
        insort(self._by_size, (size, start))

    def _remove(self, start: int, size: int) -> None:
        del self._by_start[start], self._by_end[start + size]
        del self._by_size[bisect_left(self._by_size, (size, start))]


def _reversed(memory: _Memory) -> _Memory:
    return _Memory(
        memory.sizes, [-last for last in memory.lasts], [-first for first in memory.firsts], memory.lower_bound
    )


def _overlapping_pairs(memory: _Memory) -> int:
    """How many pairs of tensors are alive together, counted at the birth of the later one."""
    firsts, lasts = sorted(memory.firsts), sorted(memory.lasts)
    pairs = dead = 0
    for born, first in enumerate(firsts):
        while lasts[dead] < first:
            dead += 1
        pairs += born - dead
    return pairs


def _conflicts(memory: _Memory) -> list[list[int]]:
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


def _place(memory: _Memory, conflicts: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
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


def _shared_objects(memory: _Memory, conflicts: Sequence[Sequence[int]]) -> list[int]:
    """ExecuTorch's greedy: share whole buffers between tensors that are never alive together, then lay these out.

    It is here so that no plan is ever larger than ExecuTorch's (`exir/memory_planning.py`, greedy): in order of size,
    into the first object without a live member, else into the first with room behind them, else into a new one.
    """
    sizes = memory.sizes
    owner: dict[int, int] = {}  # tensor -> object
    at: dict[int, int] = {}  # tensor -> offset in the object
    extents: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        busy: dict[int, int] = {}  # object -> end of its members that are alive with i
        for j in conflicts[i]:
            if j in owner:
                busy[owner[j]] = max(busy.get(owner[j], 0), at[j] + sizes[j])
        chosen = next((o for o in range(len(extents)) if o not in busy), None)
        if chosen is None:
            chosen = next((o for o in sorted(busy) if busy[o] + sizes[i] <= extents[o]), len(extents))
        if chosen == len(extents):
            extents.append(sizes[i])
        owner[i], at[i] = chosen, busy.get(chosen, 0)
    bases = list(accumulate(extents, initial=0))
    return [bases[owner[i]] + at[i] for i in range(len(sizes))]


def _hill_climb(memory: _Memory, conflicts: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """Swap a highest tensor with one that pushed it up and place all again, until close to the lower bound.

    The idea is Vela's (`hillclimb_allocation.py`). The choice of the swap is random, from a fixed seed.
    """
    choice = Random(0)
    order = list(order)
    best = _place(memory, conflicts, order)
    height, goal = _height(memory, best), memory.lower_bound * (1 + CLOSE_ENOUGH)
    cost = len(order) + sum(map(len, conflicts))
    for _ in range(min(CLIMB_BUDGET // cost, CLIMB_ROUNDS * len(order))):
        if height <= goal:
            break
        position = {i: at for at, i in enumerate(order)}
        top = choice.choice([i for i in order if best[i] + memory.sizes[i] == height])
        pushers = {j for j in conflicts[top] if position[j] < position[top]}
        pushers |= {k for j in pushers for k in conflicts[j] if position[k] < position[top]}
        if not pushers:
            break
        changed = list(order)
        a, b = position[top], position[choice.choice(sorted(pushers))]
        changed[a], changed[b] = changed[b], changed[a]
        offsets = _place(memory, conflicts, changed)
        if (new_height := _height(memory, offsets)) <= height:
            order, best, height = changed, offsets, new_height
    return best
