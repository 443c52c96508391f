"""Memory planners: sound, deterministic, near the lower bound, never above ExecuTorch's greedy plan, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delegraph.aot.emission.planners import best_fit, greedy, naive, search
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
@pytest.mark.parametrize("planner", [greedy, naive, search])
def test_no_two_live_tensors_overlap(planner, wanted: list[Lifetime]) -> None:
    plan = planner(wanted, ALIGNMENT)
    check_plan(wanted, plan, ALIGNMENT)
    assert plan.total >= plan.lower_bound
    assert plan == planner(wanted, ALIGNMENT)


@settings(deadline=None)  # a loaded machine may be slow
@given(lifetimes())
def test_greedy_is_never_above_executorch(wanted: list[Lifetime]) -> None:
    one_memory = [Lifetime(x.id, x.nbytes, x.first, x.last) for x in wanted]
    assert search(one_memory, ALIGNMENT).total <= greedy(one_memory, ALIGNMENT).total <= executorch_greedy(one_memory)


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


def test_a_planner_that_was_one_of_its_own_is_greedy_now() -> None:
    chain = [Lifetime(i, 100, i, i + 1) for i in range(50)]
    with pytest.warns(DeprecationWarning, match="'best_fit' is deprecated: use 'greedy'"):
        assert best_fit(chain, ALIGNMENT) == greedy(chain, ALIGNMENT)


def test_hill_climbing_finds_what_first_fits_miss() -> None:
    """Lifetimes of a small model whose best-fit plans take 208 bytes; 192 are enough."""
    spans = [(48, -1, 1), (24, -1, 3), (48, 0, 1), (48, 1, 6), (48, 2, 8), (24, 3, 8), (24, 4, 5), (24, 5, 8)]
    spans += [(12, 6, 7), (48, 7, 8)]
    wanted = [Lifetime(i, *span) for i, span in enumerate(spans)]
    assert greedy(wanted, ALIGNMENT).total == 192


def cut_up(count: int, seed: int, steps: int = 100, nbytes: int = 1024 * ALIGNMENT) -> list[Lifetime]:
    """A rectangle of steps and bytes, cut into `count` pieces: a plan without any gap exists, and is hard to find."""
    choice = Random(seed)
    pieces = [(0, steps, 0, nbytes // ALIGNMENT)]
    while len(pieces) < count:
        first, end, low, high = pieces.pop(choice.randrange(len(pieces)))
        if choice.random() < 0.5 and end - first > 1:
            cut = choice.randint(first + 1, end - 1)
            pieces += [(first, cut, low, high), (cut, end, low, high)]
        elif high - low > 1:
            cut = choice.randint(low + 1, high - 1)
            pieces += [(first, end, low, cut), (first, end, cut, high)]
        else:
            pieces.append((first, end, low, high))
    choice.shuffle(pieces)
    return [Lifetime(i, (high - low) * ALIGNMENT, first, end - 1) for i, (first, end, low, high) in enumerate(pieces)]


def test_search_finds_and_certifies_what_the_heuristics_miss() -> None:
    missed = 0
    for seed in range(12):
        wanted = cut_up(24, seed)
        plan = search(wanted, ALIGNMENT)
        check_plan(wanted, plan, ALIGNMENT)
        assert plan.is_optimal and plan.total == 1024 * ALIGNMENT
        missed += not greedy(wanted, ALIGNMENT).is_optimal
    assert missed


def test_search_proves_that_the_bytes_alive_are_not_enough() -> None:
    """80 bytes are alive at most, and no order of placing these (all were tried) takes less than 96."""
    spans = [(32, 1, 1), (48, 7, 8), (32, 5, 8), (32, 3, 5), (48, 1, 2), (16, 4, 5), (16, 3, 4), (32, 2, 3), (48, 6, 6)]
    wanted = [Lifetime(i, *span) for i, span in enumerate(spans)]
    assert greedy(wanted, ALIGNMENT).lower_bound == 80
    plan = search(wanted, ALIGNMENT)
    assert (plan.total, plan.lower_bound, plan.is_optimal) == (96, 96, True)


def test_search_stops_by_counting_and_keeps_the_best_plan() -> None:
    """More than the work that is allowed: no proof, and still one plan on every machine, no worse than before."""
    wanted = cut_up(60, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["delegraph.aot.emission.planners.search"], "BUDGET", 20_000)
        plan = search(wanted, ALIGNMENT)
        assert plan == search(wanted, ALIGNMENT)
    check_plan(wanted, plan, ALIGNMENT)
    assert not plan.is_optimal
    assert plan.lower_bound < plan.total <= greedy(wanted, ALIGNMENT).total


def test_stretches_of_time_are_searched_apart() -> None:
    """Two programs one after the other: each is as hard as alone, and the lower one has nothing to look for."""
    one = cut_up(24, 1)
    other = [Lifetime(100 + x.id, x.nbytes // 2, x.first + 200, x.last + 200) for x in cut_up(24, 2)]
    plan = search([*one, *other], ALIGNMENT)
    check_plan([*one, *other], plan, ALIGNMENT)
    assert plan.is_optimal


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


def test_a_model_whose_plan_takes_a_search_to_be_close_to_the_bound() -> None:
    """The tensors of torchvision's Swin transformer (`tests/zoo`), for which the heuristics alone need 8 % more."""
    rows = json.loads((Path(__file__).parent / "swin_lifetimes.json").read_text())
    plan = greedy([Lifetime(i, *row) for i, row in enumerate(rows)], ALIGNMENT)
    assert plan.total <= 1.02 * plan.lower_bound
