"""The thread that stops runs whose time is over, whatever interrupts those who ask it to."""

from __future__ import annotations

import sys
import time
from types import FrameType
from typing import Any

import pytest

from delegraph.errors import LimitExceeded
from delegraph.runtime.execution.stop import Stop
from delegraph.runtime.execution.watch import Watch


class Interrupt:
    """Raises `KeyboardInterrupt` at moment `number` of those at which CPython looks for signals in this thread: as a
    function begins, and behind a call of one in C. (It does not between taking the lock of a `with` and its body.)"""

    def __init__(self, number: int) -> None:
        self.left = number

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "c_return") or argument is sys.setprofile:
            return
        if self.left == 0:
            sys.setprofile(None)
            raise KeyboardInterrupt
        self.left -= 1

    def __enter__(self) -> None:
        sys.setprofile(self)

    def __exit__(self, *exception: object) -> None:
        sys.setprofile(None)


def stopped(watch: Watch, seconds: float) -> bool:
    """Whether `watch` ends a run whose time is over."""
    stop = Stop(deadline=time.monotonic() + seconds)
    watch.begin(stop, seconds)
    end = time.monotonic() + 2
    while stop.fault is None and time.monotonic() < end:
        time.sleep(0.0005)
    return isinstance(stop.fault, LimitExceeded)


def test_an_interrupt_at_any_step_leaves_the_watch_at_work() -> None:
    for number in range(1000):
        watch = Watch()
        try:
            with Interrupt(number):
                watch.begin(Stop(deadline=time.monotonic() + 10), 10)
        except KeyboardInterrupt:
            assert stopped(watch, 0.001), f"interrupted at step {number}, the watch stops nobody"
        else:
            break
    assert 0 < number < 999


def test_the_watch_goes_on_with_the_next_deadline() -> None:
    watch = Watch()
    assert all(stopped(watch, seconds) for seconds in (0.02, 0.001, 0.01))


def test_a_run_that_has_ended_is_left_alone() -> None:
    watch = Watch()
    stop = Stop(deadline=time.monotonic() + 0.01)
    watch.begin(stop, 0.01)
    watch.end(stop)
    assert stopped(watch, 0.03) and stop.fault is None


@pytest.mark.parametrize("later", [0.05, 5.0])
def test_an_earlier_deadline_does_not_wait_for_a_later_one(later: float) -> None:
    watch = Watch()
    watch.begin(Stop(deadline=time.monotonic() + later), later)
    assert stopped(watch, 0.005)
