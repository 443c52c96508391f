"""Memory planners: plans of the kit's programs and of random lifetimes, without torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from time import perf_counter
from typing import Final, TypeAlias

from delegraph.interfaces import Lifetime, MemoryPlanner, Plan, PlanError, check_plan
from delegraph.plugins import default_registry
from delegraph.program import deserialize_program, memory_map
from delegraph_testkit.bench import Bench, Stored

__all__ = [
    "lifetimes_are_left_alone",
    "lower_bounds_are_true",
    "plans_are_no_larger_than_naive",
    "plans_are_repeatable",
    "plans_are_sound",
    "plans_are_told",
]

Case: TypeAlias = tuple[str, Sequence[Lifetime], int]
"""A name for messages, lifetimes, and an alignment in bytes."""

_ALIGNMENTS: Final = (1, 16, 64, 4096)
_RANDOM: Final = 24
"""Random cases beside each program."""


def plans_are_sound(bench: Bench, stored: Stored) -> None:
    """Every place is aligned and inside its memory, and no two tensors that are alive together share a byte; of a
    memory that is asked about alone, too."""
    for what, lifetimes, alignment in _cases(stored):
        alone = {lifetime.memory_id for lifetime in lifetimes}
        for part in (lifetimes, *([each for each in lifetimes if each.memory_id == memory] for memory in alone)):
            plan = _planner(bench.subject.name)(part, alignment)
            assert isinstance(plan, Plan), f"{what}: it gives {plan!r}, not a delegraph.interfaces.Plan"
            try:
                check_plan(part, plan, alignment)
            except PlanError as error:
                raise AssertionError(f"{what}: {error}") from error
            assert not any(plan.buffer_sizes[:1]), (
                f"{what}: it plans {plan.buffer_sizes[0]} bytes of memory 0, which is reserved"
            )


def plans_are_repeatable(bench: Bench, stored: Stored) -> None:
    """The same lifetimes have the same plan, whatever was planned before: files are the same to the byte."""
    planner, cases = _planner(bench.subject.name), list(_cases(stored))
    once = [planner(lifetimes, alignment) for _, lifetimes, alignment in cases]
    again = [planner(list(lifetimes), alignment) for _, lifetimes, alignment in reversed(cases)]
    for (what, _, _), first, second in zip(cases, once, reversed(again), strict=True):
        assert first == second, f"{what}: it is planned in two ways"


def plans_are_no_larger_than_naive(bench: Bench, stored: Stored) -> None:
    """No plan takes more than a place of its own for every tensor."""
    naive = _planner("naive")
    for what, lifetimes, alignment in _cases(stored):
        plan, most = _planner(bench.subject.name)(lifetimes, alignment), naive(lifetimes, alignment)
        assert plan.total <= most.total, (
            f"{what}: it takes {plan.total:,} bytes, and a place of its own for every tensor {most.total:,}"
        )


def lower_bounds_are_true(bench: Bench, stored: Stored) -> None:
    """`lower_bound` is no more than a plan of anybody takes."""
    greedy = _planner("greedy")
    for what, lifetimes, alignment in _cases(stored):
        plan = _planner(bench.subject.name)(lifetimes, alignment)
        least = min(plan.total, greedy(lifetimes, alignment).total)
        assert plan.lower_bound <= least, (
            f"{what}: it says that no plan takes less than {plan.lower_bound:,} bytes, and one takes {least:,}"
        )


def lifetimes_are_left_alone(bench: Bench, stored: Stored) -> None:
    """The list of lifetimes stays as it was."""
    for what, lifetimes, alignment in _cases(stored):
        own = list(lifetimes)
        _planner(bench.subject.name)(own, alignment)
        assert own == list(lifetimes), f"{what}: it changed the list of lifetimes"


def plans_are_told(bench: Bench, stored: Stored) -> str:
    """How near its plans are to the lower bound, and how long one takes, in the report; neither is a fault."""
    lifetimes = _random(Random(0), 500, (1,))
    start = perf_counter()
    plan = _planner(bench.subject.name)(lifetimes, 16)
    seconds = perf_counter() - start
    least = _planner("greedy")(lifetimes, 16).lower_bound
    return f"500 tensors take {100 * plan.total / least:.1f} % of the lower bound, planned in {1e3 * seconds:,.1f} ms"


def _planner(name: str) -> MemoryPlanner:
    planner: MemoryPlanner = default_registry().load("memory_planners", name)
    return planner


# ---- lifetimes -----------------------------------------------------------------------------------------


def _cases(stored: Stored) -> Iterator[Case]:
    """The lifetimes in a program, none at all, and random ones, the same every time."""
    for method in deserialize_program(stored.file.read_bytes()).execution_plan:
        tensors = memory_map(method).tensors
        lifetimes = tuple(Lifetime(t.value, t.nbytes, t.first, t.last, t.memory_id) for t in tensors)
        for alignment in _ALIGNMENTS:
            yield f"{stored.name}, method {method.name!r} at {alignment} bytes", lifetimes, alignment
    yield "no tensors", (), 16
    for seed in range(_RANDOM):
        draw = Random(f"{stored.name} {seed}")
        lifetimes = _random(draw, draw.randint(1, 30), ((1,), (1, 2), (1, 3))[seed % 3])
        alignment = _ALIGNMENTS[seed % len(_ALIGNMENTS)]
        yield f"random lifetimes {seed} for {stored.name} at {alignment} bytes", lifetimes, alignment


def _random(draw: Random, count: int, memories: Sequence[int]) -> tuple[Lifetime, ...]:
    """Tensors of 0 to 5,000 bytes, some alive always, as inputs and states are."""
    lifetimes = []
    for index in range(count):
        first = draw.randint(-1, count)
        last = first + draw.choice((0, 1, 2, 9, 2 * count))
        nbytes = draw.choice((0, 1, 16, draw.randint(0, 5000)))
        lifetimes.append(Lifetime(index, nbytes, first, last, draw.choice(memories)))
    return tuple(lifetimes)
