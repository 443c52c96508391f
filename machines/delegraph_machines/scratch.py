"""Lifetimes of a command stream's buffers -> places in scratch memory, by the installed planners."""

from __future__ import annotations

from collections.abc import Sequence

from delegraph.interfaces import Lifetime
from delegraph.lazy_dataclass import dataclass
from delegraph.plugins import default_registry

__all__ = ["Placement", "place"]


@dataclass(frozen=True, slots=True)
class Placement:
    """`offsets`, in bytes, correspond to the lifetimes; `nbytes` is their total size, and `lower_bound` the least of
    any placement."""

    offsets: tuple[int, ...]
    nbytes: int
    lower_bound: int

    def fits(self, capacity: int | None) -> bool:
        """Whether the placement fits into a memory of `capacity` bytes (None: no limit)."""
        return capacity is None or self.nbytes <= capacity


def place(lifetimes: Sequence[Lifetime], alignment: int, planner: str = "greedy") -> Placement:
    """Give each of `lifetimes` a multiple of `alignment` bytes. `planner` is a name in `delegraph.memory_planners`;
    "search" takes longer and may prove that there is no better placement.

    Raises `PluginError` for an unknown planner.
    """
    plan = default_registry().load("delegraph.memory_planners", planner)(lifetimes, alignment)
    return Placement(tuple(plan.offsets), plan.total, plan.lower_bound)
