"""Two ways to do the same -> seconds that each takes, their rounds one after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

__all__ = ["in_turn"]


def in_turn(here: Callable[[], Any], there: Callable[[], Any], rounds: int = 7) -> tuple[float, float]:
    """The median seconds of each; a first round warms up."""
    taken = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        here()
        middle = time.perf_counter()
        there()
        taken.append((middle - start, time.perf_counter() - middle))
    ours, theirs = (median(column) for column in zip(*taken[1:], strict=True))
    return ours, theirs
