"""Things that fail together, cut to those that cannot be fewer; verdicts that are alike."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from delegraph.debugging.smallest import smallest
from delegraph.debugging.verdict import Kind, Verdict


@pytest.mark.parametrize("guilty", [{0}, {19}, {7}, {7, 8}, {3, 15}, {0, 19}, {2, 3, 11}, set(range(20))])
def test_what_fails_together_is_kept_and_nothing_else(guilty: set[int]) -> None:
    trials: list[Sequence[int]] = []

    def fails(things: Sequence[int]) -> bool:
        trials.append(things)
        return guilty <= set(things)

    assert smallest(range(20), fails) == sorted(guilty)
    assert all(trials)


def test_one_of_a_thousand_takes_twenty_trials() -> None:
    trials = []

    def fails(things: Sequence[int]) -> bool:
        trials.append(len(things))
        return 617 in things

    assert smallest(range(1000), fails) == [617]
    assert len(trials) <= 20


def test_what_fails_in_other_ways_ends_too() -> None:
    """Two that fail by themselves: the first of them is told."""
    assert smallest(range(20), lambda things: bool({4, 12} & set(things))) == [4]
    assert len(smallest(range(9), lambda things: len(things) % 3 == 0)) == 3  # fewer do not, and none is not asked


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        (Verdict(Kind.WRONG, "3 of 8"), Verdict(Kind.WRONG, "1 of 2"), True),
        (Verdict(Kind.WRONG), Verdict(Kind.CRASHED), False),
        (Verdict(Kind.CRASHED, "code -11"), Verdict(Kind.CRASHED, "code -11: words"), True),
        (Verdict(Kind.REFUSED, "no mul_tensor_3\n  at a"), Verdict(Kind.REFUSED, "no mul_tensor\n  at b"), True),
        (Verdict(Kind.REFUSED, "no mul_tensor"), Verdict(Kind.REFUSED, "no scale"), False),
        (Verdict(Kind.ERROR, "float[2, 3]"), Verdict(Kind.ERROR, "float[1, 3]"), True),
    ],
)
def test_the_same_fault(first: Verdict, second: Verdict, alike: bool) -> None:
    assert first.is_like(second) is alike
    assert second.is_like(first) is alike


def test_a_verdict_is_true_where_something_is_wrong() -> None:
    assert not Verdict(Kind.RIGHT)
    assert Verdict(Kind.WRONG)
