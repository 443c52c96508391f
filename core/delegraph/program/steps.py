"""Instructions -> the straight runs among them, and the steps in which such a run is done."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import pairwise

from delegraph.lazy_dataclass import dataclass
from delegraph.program.schema import Instruction, JumpFalseCall

__all__ = ["Step", "StepKind", "straight_runs"]


class StepKind(Enum):
    """The way in which a step treats an instruction."""

    RUN = "run"
    SUBMIT = "submit"
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an order: `instruction` is the position among the instructions that were ordered."""

    kind: StepKind
    instruction: int


def straight_runs(instructions: Sequence[Instruction]) -> list[tuple[int, int]]:
    """From where to where nothing jumps: a run ends before a jump's destination and after a jump, which is its last."""
    jumps = [(index, jump) for index, jump in enumerate(instructions) if isinstance(jump, JumpFalseCall)]
    end = len(instructions)
    starts = {0, *(jump.destination_instruction for _, jump in jumps), *(index + 1 for index, _ in jumps)} - {end}
    return list(pairwise([*sorted(starts), end])) if end else []
