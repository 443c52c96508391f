"""Lifetimes -> a plan: the interface of memory planners, and the rules of a sound plan."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

from delegraph.lazy_dataclass import dataclass

__all__ = ["Lifetime", "MemoryPlanner", "Plan", "PlanError", "check_places", "check_plan"]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """`nbytes` that are alive from step `first` to step `last`, both included, in the memory `memory_id` (1-based)."""

    id: int
    nbytes: int
    first: int
    last: int
    memory_id: int = 1


@dataclass(frozen=True, slots=True)
class Plan:
    """Places, in bytes. `offsets` correspond to the lifetimes; `buffer_sizes` to the memory ids, 0 being reserved.

    `lower_bound` is the least memory of any plan: the largest sum of live (aligned) bytes, or more where the planner
    has proven more, summed over the memories.
    """

    offsets: tuple[int, ...]
    buffer_sizes: tuple[int, ...]
    lower_bound: int

    @property
    def total(self) -> int:
        """Planned bytes in all memories."""
        return sum(self.buffer_sizes)

    @property
    def is_optimal(self) -> bool:
        """Whether it is proven that no plan takes less."""
        return self.total == self.lower_bound


class MemoryPlanner(Protocol):
    """A function: the object behind a `delegraph.memory_planners` entry point."""

    def __call__(self, lifetimes: Sequence[Lifetime], alignment: int, /) -> Plan:
        """Give every tensor a place, a multiple of `alignment` bytes, in its memory."""


class PlanError(ValueError):
    """A plan puts two tensors that are alive together into one place, or breaks the alignment."""


def check_plan(lifetimes: Sequence[Lifetime], plan: Plan, alignment: int) -> None:
    """Raise `PlanError` unless `plan` is sound: aligned, inside its buffers, no two live tensors overlapping."""
    check_places(lifetimes, plan, alignment)
    for memory_id in {lifetime.memory_id for lifetime in lifetimes}:
        chosen = [i for i, lifetime in enumerate(lifetimes) if lifetime.memory_id == memory_id and lifetime.nbytes]
        _check_disjoint([lifetimes[i] for i in chosen], [plan.offsets[i] for i in chosen])


def check_places(lifetimes: Sequence[Lifetime], plan: Plan, alignment: int) -> None:
    """Raise `PlanError` unless every place is aligned and inside its buffer."""
    if len(plan.offsets) != len(lifetimes):
        raise PlanError(f"{len(plan.offsets)} offsets for {len(lifetimes)} tensors")
    for lifetime, offset in zip(lifetimes, plan.offsets, strict=True):
        if offset < 0 or offset % alignment:
            raise PlanError(f"tensor {lifetime.id} stands at {offset}, no multiple of {alignment}")
        if (
            lifetime.memory_id >= len(plan.buffer_sizes)
            or offset + lifetime.nbytes > plan.buffer_sizes[lifetime.memory_id]
        ):
            raise PlanError(f"tensor {lifetime.id} ends behind its buffer (memory {lifetime.memory_id})")


def _check_disjoint(lifetimes: Sequence[Lifetime], offsets: Sequence[int]) -> None:
    """Sweep over time with the live tensors sorted by place: each newcomer only has to miss its two neighbours."""
    events = sorted(
        [(lifetime.first, 1, i) for i, lifetime in enumerate(lifetimes)]
        + [(lifetime.last + 1, 0, i) for i, lifetime in enumerate(lifetimes)]
    )
    live: list[tuple[int, int, int]] = []
    for step, born, i in events:
        entry = (offsets[i], offsets[i] + lifetimes[i].nbytes, i)
        at = bisect_left(live, entry)
        if not born:
            del live[at]
            continue
        for start, stop, neighbor in live[max(at - 1, 0) : at + 1]:
            if start < entry[1] and entry[0] < stop:
                raise PlanError(
                    f"tensors {lifetimes[neighbor].id} and {lifetimes[i].id} are both alive at step {step}"
                    f" and share bytes of memory {lifetimes[i].memory_id}"
                )
        live.insert(at, entry)
