"""CPU times of the machine and of this process -> how many cores others use."""

from __future__ import annotations

import math
import os
import time
from _thread import allocate_lock as Lock
from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["CoresOfOthers", "Load", "load_now"]

PERIOD: Final = 0.2
"""Seconds from one look to the next, which takes some 50 us; 20 ticks of the kernel's clock for each core."""
LONG: Final = 3 * PERIOD
"""Seconds without a look after which the mean since the last look says nothing about now."""
SOON: Final = PERIOD / 4
"""Seconds to the next look where this look saw only a moment: whoever ran then, such as the caller, may be done."""

_BUSY: Final = (0, 1, 2, 5, 6, 7)
"""In a line of /proc/stat (man 5 proc): user, nice, system, irq, softirq, steal; the rest is idle or counted twice."""


class Load(NamedTuple):
    """The CPU time of all processes together, and the number of their threads that compute or wait for a core."""

    busy_seconds: float
    running: float


class CoresOfOthers:
    """The number of cores that other processes keep busy, of those that this process may run on.

        calls follow each other    the mean since the last look: others' CPU time by time
        the first for a while      others that run at this moment: who ran while nothing was called here may be gone;
                                   soon the mean since then

    `clock` is in seconds, and `own` the CPU seconds of this process. Threads may ask at once: one of them looks.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        load: Callable[[], Load] | None = None,
        own: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock, self._load, self._own = clock, load or load_now, own
        self._at, self._others = clock(), self._load().busy_seconds - own()
        self._cores, self._due = 0.0, PERIOD
        self._looking = Lock()

    def __call__(self) -> float:
        """The number at the last look; a new look is taken if that was a while ago."""
        if self._clock() - self._at >= self._due and self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looking.release()
        return self._cores

    def _look(self) -> None:
        now = self._clock()
        passed = now - self._at
        if passed < self._due:  # another thread has just looked
            return
        try:
            load, late = self._load(), passed >= LONG
        except OSError:  # this process may open no files any more, as an isolated program's: nobody else is seen
            self._cores, self._due = 0.0, math.inf
            return
        others = load.busy_seconds - self._own()
        self._cores = max(0.0, load.running - 1 if late else (others - self._others) / passed)
        self._at, self._others, self._due = now, others, SOON if late else PERIOD


def load_now() -> Load:
    """The load of all processes since the machine started, on the cores that this process may use.

    Raises `OSError` where the system does not tell: this is Linux's /proc/stat.
    """
    allowed = os.sched_getaffinity(0)
    with open("/proc/stat", encoding="ascii") as stat:
        lines = dict(line.partition(" ")[::2] for line in stat)
    times = [line.split() for core in allowed if (line := lines.get(f"cpu{core}")) is not None]
    ticks = sum(int(own[column]) for own in times for column in _BUSY)
    share = len(allowed) / (os.cpu_count() or len(allowed))
    return Load(ticks / os.sysconf("SC_CLK_TCK"), int(lines.get("procs_running", 1)) * share)
