"""The outcome of a check, and the level that it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

__all__ = ["Declined", "Level", "Outcome", "Result", "Unclaimed"]


class Level(IntEnum):
    """How far a plug-in is proven; each level needs those before it."""

    LOADS = 1
    """It is found, both halves load, and the one that runs needs no torch."""
    CONTRACT = 2
    """It keeps to the contract: writes outputs, leaves inputs, refuses damaged blobs, minds other threads."""
    PARTITIONS = 3
    """The nodes that it takes can be cut out, alone and beside other backends, and it says why it left the rest."""
    OPERATORS = 4
    """Each operator of torch's database that it claims is taken whole and right; nothing that it takes is wrong."""
    MODELS = 5
    """So are models: with dynamic shapes, state, control flow, shared weights, and the author's own."""

    def __str__(self) -> str:
        return self.name.lower()


class Outcome(Enum):
    """The outcome of a check. Only `FAILED` and `CRASHED` are faults."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    """The process died, or did not answer in time."""
    DECLINED = "declined"
    """The plug-in left it to others and said why; it does not claim it."""
    UNCLAIMED = "unclaimed"
    """Not claimed: not tried, or it would pass."""

    @property
    def is_fault(self) -> bool:
        return self in (Outcome.FAILED, Outcome.CRASHED)


class Declined(Exception):
    """Raised by a check for which the plug-in takes nothing, with its reason."""


class Unclaimed(Exception):
    """Raised by a check that would pass, and of which nothing is claimed."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of one check. `detail` is the failure, the reason for declining, or a measurement.

    `excused` is the author's reason for an expected failure.
    """

    check: str
    level: Level
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0
    excused: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether it counts against the plug-in."""
        return self.outcome.is_fault and not self.excused
