"""Units of time, and the factor between two."""

from __future__ import annotations

from enum import Enum
from typing import Final

__all__ = ["TIME_SCALE_DICT", "TimeScale", "calculate_time_scale_factor"]


class TimeScale(Enum):
    """The unit of a clock."""

    NS = "ns"
    US = "us"
    MS = "ms"
    S = "s"
    CYCLES = "cycles"


TIME_SCALE_DICT: Final = {
    TimeScale.NS: 1_000_000_000,
    TimeScale.US: 1_000_000,
    TimeScale.MS: 1000,
    TimeScale.S: 1,
    TimeScale.CYCLES: 1,
}
"""How many of them are a second; cycles are only compared with cycles."""


def calculate_time_scale_factor(source_time_scale: TimeScale, target_time_scale: TimeScale) -> float:
    """How many of `source_time_scale` are one of `target_time_scale`."""
    return TIME_SCALE_DICT[source_time_scale] / TIME_SCALE_DICT[target_time_scale]
