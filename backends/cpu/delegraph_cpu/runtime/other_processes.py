"""CPU times of the machine and of this process -> how many cores others use."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["CoresOfOthers", "busy_seconds"]

PERIOD: Final = 0.2
"""Seconds from one look to the next, which takes some 50 us; 20 ticks of the kernel's clock for each core."""

_BUSY: Final = (0, 1, 2, 5, 6, 7)
"""Of a line of /proc/stat (man 5 proc): user, nice, system, irq, softirq, steal; the rest is idle, or counted twice."""


class CoresOfOthers:
    """How many cores other processes have kept busy of late, of those that this process may run on.

    `clock`, `busy` and `own` are seconds: the time, and the CPU time of everybody and of this process.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        busy: Callable[[], float] | None = None,
        own: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock, self._busy, self._own = clock, busy or busy_seconds, own
        self._at, self._others = clock(), self._busy() - own()
        self._cores = 0.0

    def __call__(self) -> float:
        """As it was between the last two looks; a look is taken where the last one was a while ago."""
        passed = self._clock() - self._at
        if passed >= PERIOD:
            others = self._busy() - self._own()
            self._cores = max(0.0, (others - self._others) / passed)
            self._at, self._others = self._at + passed, others
        return self._cores


def busy_seconds() -> float:
    """CPU seconds of all processes since the machine started, on the cores that this one may use.

    Raises `OSError` where the system does not tell: this is Linux's /proc/stat.
    """
    allowed = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    lines = (line.split() for line in Path("/proc/stat").read_text().splitlines() if line.startswith("cpu"))
    ticks = sum(int(times[column]) for name, *times in lines if name in allowed for column in _BUSY)
    return ticks / os.sysconf("SC_CLK_TCK")
