"""A sound memory planner passes; each check of planners catches what it is there for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delegraph_testkit.outcomes import Outcome
from delegraph_testkit.subject import Kind

Install = Callable[..., Any]
pytestmark = pytest.mark.conformance

RETURNS = "    return Plan(tuple(offsets), tuple(sizes), lower_bound=0)\n"

PLANNERS = [
    ("loads/loads_with_torch", ("lifetimes, alignment):\n    \"\"\"B", "lifetimes):\n    \"\"\"B"), "calc_planner"),
    ("contract/plans_are_sound", ("a.first <= b.last", "a.first < b.last"), "are both alive at step"),
    ("contract/plans_are_sound", ("aligned(stop, alignment)", "stop"), "no multiple of"),
    ("contract/plans_are_sound", ("= [0] * (max", "= [0] * (min"), "list index out of range"),
    ("contract/plans_are_sound", ("a.memory_id == b.memory_id and ", "False and "), "are both alive at step"),
    ("contract/plans_are_sound", ("    return Plan(tuple(offsets), tuple(sizes), lower_bound=0)", "    return offsets"), "not a delegraph.interfaces.Plan"),
    ("contract/plans_are_sound", (RETURNS, f"    sizes[0] = 8\n{RETURNS}"), "8 bytes of memory 0, which is reserved"),
    ("contract/plans_are_repeatable", ("-lifetimes[i].nbytes)", "__import__('random').random())"), "it is planned in two ways"),
    ("contract/plans_are_no_larger_than_naive", ("offset = lifetimes[index], 0", "offset = lifetimes[index], 8 * alignment"), "and a place of its own for every tensor"),
    ("contract/lower_bounds_are_true", ("lower_bound=0", "lower_bound=sum(sizes) + 1"), "it says that no plan takes less than"),
    ("contract/lifetimes_are_left_alone", (RETURNS, f"    if isinstance(lifetimes, list):\n        lifetimes.clear()\n{RETURNS}"), "it changed the list of lifetimes"),
    ("contract/several_memories_are_planned", (RETURNS, f"    sizes = sizes[:2]\n{RETURNS}"), "IndexError"),
    ("contract/small_memories_are_refused", ("    placed = []\n", "    placed = []\n    if sum(each.nbytes for each in lifetimes) > 64:\n        raise MemoryError('full')\n"), "full"),
    ("models/residual", ("a.first <= b.last", "False"), "the memory planner's plan is unsound"),
]  # fmt: skip
# ruff: noqa: E501 - what a fault is written in


@pytest.mark.parametrize(("check", "change", "message"), PLANNERS)
def test_a_fault_of_a_planner(install: Install, check: str, change: tuple[str, str], message: str) -> None:
    result = install(planner=change).result(check, Kind.PLANNER, programs_of(check))
    assert result.outcome is Outcome.FAILED
    assert message in result.detail


@pytest.mark.parametrize("check", sorted({check for check, _, _ in PLANNERS}))
def test_a_sound_planner(install: Install, check: str) -> None:
    result = install().result(check, Kind.PLANNER, programs_of(check))
    assert (result.outcome, result.detail) == (Outcome.PASSED, "")


def programs_of(check: str) -> tuple[str, ...] | None:
    return ("arithmetic@greedy",) if check.startswith("contract/") and "memories" not in check else None


def test_a_planner_that_needs_torch_is_found_out(install: Install) -> None:
    needs = ("from delegraph", "try:\n    import torch\nexcept ImportError:\n    pass\nfrom delegraph")
    result = install(planner=needs).isolated("loads/loads_without_torch", kind=Kind.PLANNER)
    assert result.outcome is Outcome.FAILED
    assert "torch" in result.detail


def test_what_its_plans_take_is_told(install: Install) -> None:
    result = install().result("models/plans_are_told", Kind.PLANNER)
    assert result.detail.startswith("500 tensors take 1") and "% of the lower bound, planned in " in result.detail
