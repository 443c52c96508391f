"""Seconds of several runs -> percentiles."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import fmean
from typing import Final

__all__ = ["PERCENTILES", "percentile", "times_json"]

PERCENTILES: Final = (50, 90, 99)


def percentile(seconds: Sequence[float], percent: float) -> float:
    """The shortest of `seconds` that `percent` of them do not exceed (the nearest rank); 0 of none."""
    ordered = sorted(seconds)
    return ordered[max(0, ceil(percent / 100 * len(ordered)) - 1)] if ordered else 0.0


def times_json(seconds: Sequence[float]) -> dict[str, float]:
    """Seconds by name; nothing of no runs."""
    if not seconds:
        return {}
    percentiles = {f"p{percent}": percentile(seconds, percent) for percent in PERCENTILES}
    return {"min": min(seconds), "mean": fmean(seconds), **percentiles, "max": max(seconds)}
