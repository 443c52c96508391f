"""A run and the wish to end it, from another thread -> the run ends before its next instruction.

The executor runs the calls of a block off an iterator. Whoever stops it moves that iterator to its end, so that the
loop ends by itself, without a look at anything between two instructions:

    the run                                  another thread
    calls = stop.calls = iter(block.calls)   stop.fault = Cancelled(…)
    if stop.fault is None:                   stop.calls -> to its end
        for call in calls: call()            backends' engines are told

Either the run sees the fault, or the other thread sees the new iterator.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock as Lock
from collections.abc import Callable, Iterator, Sequence
from math import inf
from operator import length_hint
from time import monotonic
from typing import Any

from delegraph.errors import Cancelled, LimitExceeded, RuntimeFault
from delegraph.program.limits import Limits

__all__ = ["Runs", "Stop", "time_exceeded"]

Cancel = Callable[[bool], object]
"""Tells an engine to stop its work (True), or that the stop is over (False)."""


class Stop:
    """How one run is stopped. `calls` are those that it runs now; `remaining`, how many of them it left out."""

    calls: Iterator[Callable[[], object]] = iter(())
    fault: RuntimeFault | None = None
    remaining = 0
    is_over = False

    def __init__(self, engines: Sequence[Cancel] = (), deadline: float = inf) -> None:
        # There is one for each run, so it holds no more than differs: the rest is set when it is needed.
        self.deadline = deadline
        self._engines = engines

    def request(self, fault: RuntimeFault) -> bool:
        """End the run with `fault`; False if it has ended, or is ending, already. From any thread."""
        with _ONE_AT_A_TIME:
            if self.is_over or self.fault is not None:
                return False
            self.fault = fault
            calls: Any = self.calls
            self.remaining = length_hint(calls)
            # An iterator set behind its list's end is exhausted: the run's loop ends by itself, at no cost per call.
            calls.__setstate__(sys.maxsize)
            if self.is_over:  # in between; then nobody would take back what an engine is told
                return False
            for cancel in self._engines:
                cancel(True)
            return True

    def let_engines_go(self) -> None:
        """The run is over, and its engines may run again."""
        with _ONE_AT_A_TIME:
            for cancel in self._engines:
                cancel(False)


_ONE_AT_A_TIME = Lock()


class Runs:
    """The runs of one method, one after the other: each ends by itself, by `cancel`, or when its time is over."""

    __slots__ = ("_ends_next", "_engines", "_now", "_seconds", "_watch")

    def __init__(self, engines: Sequence[Cancel], limits: Limits) -> None:
        self._engines = engines
        self._seconds = inf if limits.seconds is None else limits.seconds
        self._watch = _watch_module() if limits.watched else None  # whose `WATCH` is another one after a fork
        self._now: Stop | None = None
        self._ends_next = False

    def begin(self) -> Stop:
        """A new `Stop` for the run that begins now; to be passed to `end`."""
        if self._now is not None:  # of a run that an interrupt took out of its last step
            self.end(self._now)
        stop = self._now = Stop(self._engines, monotonic() + self._seconds)
        if self._ends_next:
            self.cancel()
        if self._watch is not None:
            self._watch.WATCH.begin(stop, self._seconds)
        return stop

    def end(self, stop: Stop) -> None:
        """The run is over, in whatever way."""
        if self._watch is not None:
            self._watch.WATCH.end(stop)
        stop.is_over = True
        # After `is_over`: a request that comes now sees it, and tells no engine to stop that nobody would let go.
        if stop.fault is not None:
            stop.let_engines_go()
        self._now = None

    def cancel(self, *, next_run: bool = False) -> bool:
        """End the run that goes on now, from another thread; False if none does. With `next_run` the next one ends as
        it begins, then; until `cancel()` is called."""
        self._ends_next = next_run
        stop = self._now
        if stop is None:
            return next_run
        self._ends_next = False
        return stop.request(Cancelled("it was cancelled"))


def _watch_module() -> Any:
    from delegraph.runtime.execution import watch  # few programs have a limit that is to be watched

    return watch


def time_exceeded(seconds: float) -> LimitExceeded:
    """The error that ends a run that takes longer than `seconds`."""
    return LimitExceeded(f"it has run for {seconds:g} seconds, its limit; set Limits(seconds=…) to give it more")


def _after_fork() -> None:
    """A child process has no other threads, and its runs are its own."""
    global _ONE_AT_A_TIME  # noqa: PLW0603 - the child's own
    _ONE_AT_A_TIME = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
