"""A method and its inputs -> how long its executions take, and how much memory the process had at most."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from delegraph.devtools.profiling.percentiles import PERCENTILES, percentile, times_json

if TYPE_CHECKING:
    from delegraph.runtime.isolation.module import IsolatedMethod
    from delegraph.runtime.method import Method

__all__ = ["Timing", "latency_text", "measure"]


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of the first execution, with its one-time work, and of those that were timed behind the warm-up.

    `peak_memory` is the largest resident size of the process so far, in bytes; None where the system does not tell.
    """

    first: float
    seconds: tuple[float, ...]
    peak_memory: int | None

    def to_json(self) -> dict[str, float]:
        """Seconds by name."""
        return {**times_json(self.seconds), "median": median(self.seconds), "repeat": len(self.seconds)}


def measure(
    method: Method | IsolatedMethod, inputs: Sequence[object], warmup: int, repeat: int
) -> tuple[list[object], Timing]:
    """The outputs of the first execution, and the times of `repeat` others behind `warmup` that are not timed."""
    start = time.perf_counter()
    outputs = method.execute(inputs)
    first = time.perf_counter() - start
    for _ in range(warmup):
        method.execute(inputs, clone_outputs=False)
    return outputs, Timing(first, tuple(_timed(method, inputs) for _ in range(repeat)), _peak_memory())


def _timed(method: Method | IsolatedMethod, inputs: Sequence[object]) -> float:
    start = time.perf_counter()
    method.execute(inputs, clone_outputs=False)
    return time.perf_counter() - start


def _peak_memory() -> int | None:
    """Of Linux what /proc says (proc(5): VmHWM in kB): getrusage there begins with the parent process's value."""
    try:
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError):
        pass
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # getrusage(2): bytes there, kilobytes elsewhere


def latency_text(timing: Timing) -> str:
    """One line for people."""
    from delegraph.tables import milliseconds

    percentiles = ", ".join(
        f"p{percent} {milliseconds(percentile(timing.seconds, percent))}" for percent in PERCENTILES[1:]
    )
    return (
        f"first execution {milliseconds(timing.first)}; latency {milliseconds(min(timing.seconds))} at best,"
        f" {percentiles}, {milliseconds(median(timing.seconds))} in the median of {len(timing.seconds)}"
    )
