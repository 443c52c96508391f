"""Runs with a deadline -> each is stopped when its time is over, by a thread that watches them all."""

from __future__ import annotations

import os
from _thread import start_new_thread
from contextlib import suppress
from math import inf
from queue import Empty, SimpleQueue
from time import monotonic

from delegraph.interfaces.platform import DEFAULT_PLATFORM, LogLevel
from delegraph.runtime.execution.stop import Stop, time_exceeded

__all__ = ["WATCH", "Watch"]


class Watch:
    """The thread that stops runs whose time is over. There is one, which starts when the first run is to be watched.

    A run whose deadline is later than the moment at which the thread wakes anyway does not wake it: to be watched
    costs such a run one entry in a dict.

    Ctrl-C may fall between any two steps of `begin`, so it holds no lock that it could leave behind: a run is entered,
    the thread woken, or started, in one step each. (`Condition` and `Thread.start` take several, and a lock that they
    leave taken.) Should two threads be started, both do the same, and no run is stopped twice.
    """

    def __init__(self) -> None:
        self._runs: dict[Stop, float] = {}
        self._wakes = inf
        self._changed: SimpleQueue[None] = SimpleQueue()
        self._thread: int | None = None

    def begin(self, stop: Stop, seconds: float) -> None:
        """Stop the run when its `deadline`, `seconds` after its start, has come."""
        self._runs[stop] = seconds
        if stop.deadline < self._wakes:
            self._changed.put(None)
            if self._thread is None:
                self._thread = start_new_thread(self._watch, ())

    def end(self, stop: Stop) -> None:
        """The run has ended."""
        self._runs.pop(stop, None)

    def _watch(self) -> None:
        while True:
            self._wakes = inf  # who begins while the runs are looked through wakes us again
            self._wakes = wakes = self._stop_late_ones()
            with suppress(Empty):
                self._changed.get(timeout=None if wakes == inf else max(0.0, wakes - monotonic()))

    def _stop_late_ones(self) -> float:
        """Stop the runs whose time is over; returns the next deadline."""
        now, next_one = monotonic(), inf
        for stop, seconds in self._runs.copy().items():
            if stop.deadline > now:
                next_one = min(next_one, stop.deadline)
            elif self._runs.pop(stop, None) is not None:
                try:
                    stop.request(time_exceeded(seconds))
                except Exception as error:  # a backend's; the watch goes on for all others
                    DEFAULT_PLATFORM.log(LogLevel.ERROR, f"a backend could not be stopped: {error}")
        return next_one


WATCH = Watch()


def _after_fork() -> None:
    """A child process has no watching thread, and its runs are its own."""
    global WATCH  # noqa: PLW0603 - the child's own
    WATCH = Watch()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
