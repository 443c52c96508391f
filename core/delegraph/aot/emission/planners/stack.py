"""Tensors of one memory, a limit -> offsets below it, or the proof that there are none: tensors stacked from below.

Any layout can be pushed down until each tensor stands on the floor or on another one. So it is enough to place tensors
in the order of their offsets, each on the highest of those below it that are alive together with it:

    limit   . . . . . . .        every step of time has `rest` bytes still to place. A tensor can go next
            .   +---+   .        - where it and all that is left above it end below the limit, at any time
            +---+ c +---+        - unless another one fits whole below it: that one goes first
            | a |---| b |        - unless one just like it stands before it
            +---+ d +---+
            time ->

The rules are those of MiniMalloc (Moffitt, ASPLOS 2023).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from delegraph.aot.emission.planners.one_memory import OneMemory

__all__ = ["Answer", "Stack", "Work"]


@dataclass(slots=True)
class Work:
    """How many tensors a search may still look at."""

    left: int


class Answer(Enum):
    """The outcome of a search that found no layout."""

    IMPOSSIBLE = auto()
    """Every way was tried."""
    UNKNOWN = auto()
    """The work was used up."""


@dataclass(slots=True)
class _Step:
    """One tensor placed, and what to restore when it is taken away: floors of others, ways not yet tried."""

    tensor: int
    floors: list[tuple[int, int]]
    untried: list[int]


class Stack:
    """The search for one set of tensors, each of which takes bytes."""

    def __init__(self, memory: OneMemory, conflicts: Sequence[Sequence[int]]) -> None:
        self._sizes = memory.sizes
        self._conflicts = conflicts
        births = sorted(set(memory.firsts))
        self._times = [
            range(bisect_left(births, first), bisect_right(births, last))
            for first, last in zip(memory.firsts, memory.lasts, strict=True)
        ]
        self._count = len(births)
        self._twin = _twins(memory)
        self._orders = _orders(memory)

    def below(self, limit: int, work: Work, at_most: int) -> list[int] | Answer:
        """Offsets that end at `limit` or below it; several orders of trying share `at_most` of `work`."""
        for rank in self._orders:
            share = Work(min(work.left, at_most // len(self._orders)))
            before = share.left
            answer = self._try(limit, rank, share)
            work.left -= before - share.left
            if answer is not Answer.UNKNOWN:
                return answer
        return Answer.UNKNOWN

    def _try(self, limit: int, rank: Sequence[int], work: Work) -> list[int] | Answer:
        state = _State([0] * len(self._sizes), [0] * self._count, set(range(len(self._sizes))))
        for tensor, times in enumerate(self._times):
            for time in times:
                state.rest[time] += self._sizes[tensor]
        steps: list[_Step] = []
        untried = self._next(state, limit, rank, work)
        while len(steps) < len(self._sizes):
            if work.left <= 0:
                return Answer.UNKNOWN
            if untried:
                tensor = untried.pop()
                floors = self._put(state, tensor, limit)
                steps.append(_Step(tensor, floors, untried))
                untried = self._next(state, limit, rank, work) if state.fits else []
            elif steps:
                last = steps.pop()
                self._take(state, last)
                untried = last.untried
            else:
                return Answer.IMPOSSIBLE
        return state.floors

    def _next(self, state: _State, limit: int, rank: Sequence[int], work: Work) -> list[int]:
        """The tensors that may go next, the one to try first at the end."""
        floors, sizes = state.floors, self._sizes
        work.left -= len(state.waiting)
        if not state.waiting:
            return []
        # above this floor, another tensor would fit whole below it, or the rest would not end below the limit
        lowest_top = min([floors[i] + sizes[i] for i in state.waiting])
        ceiling = min(lowest_top - 1, limit - max(state.rest))
        ways = [i for i in state.waiting if floors[i] <= ceiling and self._twin[i] not in state.waiting]
        ways.sort(key=lambda i: (floors[i], rank[i]), reverse=True)
        return ways

    def _put(self, state: _State, tensor: int, limit: int) -> list[tuple[int, int]]:
        """Place `tensor` on its floor; the floors that this raised, as they were."""
        floors, sizes, rest, waiting = state.floors, self._sizes, state.rest, state.waiting
        waiting.discard(tensor)
        top = floors[tensor] + sizes[tensor]
        raised = [(i, floors[i]) for i in self._conflicts[tensor] if i in waiting and floors[i] < top]
        room = limit - top
        fits = True
        for i, _ in raised:
            floors[i] = top
            fits = fits and sizes[i] <= room
        for time in self._times[tensor]:
            rest[time] -= sizes[tensor]
            fits = fits and rest[time] <= room
        state.fits = fits
        return raised

    def _take(self, state: _State, step: _Step) -> None:
        """Undo `_put`."""
        state.waiting.add(step.tensor)
        for i, floor in step.floors:
            state.floors[i] = floor
        for time in self._times[step.tensor]:
            state.rest[time] += self._sizes[step.tensor]


@dataclass(slots=True)
class _State:
    """`floors`: where each tensor stands, or would. `rest`: bytes yet to place, by time. `waiting`: not placed."""

    floors: list[int]
    rest: list[int]
    waiting: set[int]
    fits: bool = True
    """Whether all that waits may still end below the limit."""


def _twins(memory: OneMemory) -> list[int]:
    """For each tensor the one before it with its size and lifetime, or -1: of two such, the order does not matter."""
    seen: dict[tuple[int, int, int], int] = {}
    twins: list[int] = []
    for i, key in enumerate(zip(memory.sizes, memory.firsts, memory.lasts, strict=True)):
        twins.append(seen.get(key, -1))
        seen[key] = i
    return twins


def _orders(memory: OneMemory) -> list[list[int]]:
    """By tensor, its rank in what to try first: the longest alive, the largest, the largest in bytes times steps."""
    sizes, count = memory.sizes, range(len(memory.sizes))
    steps = [last - first + 1 for first, last in zip(memory.firsts, memory.lasts, strict=True)]
    keys: tuple[Callable[[int], tuple[int, ...]], ...] = (
        lambda i: (-steps[i], -sizes[i], i),
        lambda i: (-sizes[i], -steps[i], i),
        lambda i: (-sizes[i] * steps[i], i),
    )
    ranks = []
    for key in keys:
        rank = [0] * len(sizes)
        for position, i in enumerate(sorted(count, key=key)):
            rank[i] = position
        ranks.append(rank)
    return ranks
