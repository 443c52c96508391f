"""Memory planners: sound, deterministic, near the lower bound, never above ExecuTorch's greedy plan, without torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegraph.aot.emission.planners import greedy, naive
from delegraph.interfaces import Lifetime, Plan, PlanError, check_plan

ALIGNMENT = 16


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Lifetime]:
    count = draw(st.integers(0, 30))
    firsts = draw(st.lists(st.integers(-1, 20), min_size=count, max_size=count))
    return [
        Lifetime(
            i, draw(st.integers(0, 5000)), first, first + draw(st.integers(0, 9)), draw(st.sampled_from([1, 1, 3]))
        )
        for i, first in enumerate(firsts)
    ]


def executorch_greedy(lifetimes: Sequence[Lifetime]) -> int:
    """The total of ExecuTorch's greedy plan, written as obviously as possible (`exir/memory_planning.py`)."""
    objects: list[tuple[int, list[tuple[Lifetime, int]]]] = []

    def end_of_live(members: list[tuple[Lifetime, int]], one: Lifetime) -> int:
        return max(
            (at + aligned(m.nbytes) for m, at in members if m.first <= one.last and one.first <= m.last), default=0
        )

    for one in sorted(lifetimes, key=lambda one: -aligned(one.nbytes)):
        free = [(size, members) for size, members in objects if not end_of_live(members, one)]
        roomy = [(s, members) for s, members in objects if end_of_live(members, one) + aligned(one.nbytes) <= s]
        size, members = next(iter(free + roomy), (aligned(one.nbytes), []))
        if not members:
            objects.append((size, members))
        members.append((one, end_of_live(members, one)))
    return sum(size for size, _ in objects)


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


@settings(deadline=None)  # a loaded machine may be slow
@given(lifetimes())
@pytest.mark.parametrize("planner", [greedy, naive])
def test_no_two_live_tensors_overlap(planner, wanted: list[Lifetime]) -> None:
    plan = planner(wanted, ALIGNMENT)
    check_plan(wanted, plan, ALIGNMENT)
    assert plan.total >= plan.lower_bound
    assert plan == planner(wanted, ALIGNMENT)


@settings(deadline=None)  # a loaded machine may be slow
@given(lifetimes())
def test_greedy_is_never_above_executorch(wanted: list[Lifetime]) -> None:
    one_memory = [Lifetime(x.id, x.nbytes, x.first, x.last) for x in wanted]
    assert greedy(one_memory, ALIGNMENT).total <= executorch_greedy(one_memory)


@settings(deadline=None)  # a loaded machine may be slow
@given(lifetimes())
def test_the_lower_bound_is_the_largest_sum_of_live_bytes(wanted: list[Lifetime]) -> None:
    peaks = 0
    for memory_id in {x.memory_id for x in wanted}:
        mine = [x for x in wanted if x.memory_id == memory_id]
        peaks += max(sum(aligned(y.nbytes) for y in mine if y.first <= x.first <= y.last) for x in mine)
    assert greedy(wanted, ALIGNMENT).lower_bound == peaks


def test_a_chain_needs_two_neighbours_and_naive_needs_all() -> None:
    chain = [Lifetime(i, 100, i, i + 1) for i in range(50)]
    assert greedy(chain, ALIGNMENT).buffer_sizes == (0, 224)
    assert naive(chain, ALIGNMENT).buffer_sizes == (0, 50 * 112)


def test_memories_are_planned_apart() -> None:
    plan = greedy([Lifetime(0, 16, 0, 5), Lifetime(1, 32, 0, 5, memory_id=3), Lifetime(2, 16, 2, 3)], ALIGNMENT)
    assert plan.buffer_sizes == (0, 32, 0, 32)
    assert plan.lower_bound == 64


def test_nothing_to_plan() -> None:
    assert greedy([], ALIGNMENT) == Plan((), (0, 0), 0)


def test_hill_climbing_finds_what_first_fits_miss() -> None:
    """Lifetimes of a small model whose best-fit plans take 208 bytes; 192 are enough."""
    spans = [(48, -1, 1), (24, -1, 3), (48, 0, 1), (48, 1, 6), (48, 2, 8), (24, 3, 8), (24, 4, 5), (24, 5, 8)]
    spans += [(12, 6, 7), (48, 7, 8)]
    wanted = [Lifetime(i, *span) for i, span in enumerate(spans)]
    assert greedy(wanted, ALIGNMENT).total == 192


def test_a_very_large_graph_is_planned_by_sweeping() -> None:
    """Many long lifetimes: more pairs alive together than a planner may look at."""
    wanted = [Lifetime(i, 64 + i % 7 * 16, i, i + 700) for i in range(6000)]
    plan = greedy(wanted, ALIGNMENT)
    check_plan(wanted, plan, ALIGNMENT)
    assert plan.total < 1.2 * plan.lower_bound


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan((0,), (0, 64), 0), "1 offsets for 2 tensors"),
        (Plan((0, 8), (0, 64), 0), "tensor 1 stands at 8, no multiple of 16"),
        (Plan((0, 48), (0, 64), 0), "tensor 1 ends behind its buffer"),
        (Plan((0, 16), (0, 64), 0), "tensors 0 and 1 are both alive at step 1 and share bytes of memory 1"),
    ],
)
def test_an_unsound_plan_is_told(plan: Plan, message: str) -> None:
    wanted = [Lifetime(0, 32, 0, 1), Lifetime(1, 32, 1, 2)]
    with pytest.raises(PlanError, match=message):
        check_plan(wanted, plan, ALIGNMENT)


def test_planners_need_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from delegraph.aot.emission.planners import greedy; print(greedy([], 1).total)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
