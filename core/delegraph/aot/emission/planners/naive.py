"""Lifetimes -> everything in a place of its own: nothing is reused, so each value can be looked at after a run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from delegraph.aot.emission.planners.one_memory import lay_out
from delegraph.interfaces.memory_planner import Lifetime, Plan

__all__ = ["naive"]


def naive(lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
    """Everything in a place of its own: nothing is ever reused."""
    return lay_out(lifetimes, alignment, lambda memory: list(accumulate(memory.sizes, initial=0))[:-1])
