"""How a trial of a program can end, and whether two trials ended alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["Kind", "Verdict"]


class Kind(Enum):
    """How a trial ended."""

    RIGHT = "right"
    WRONG = "wrong numbers"
    REFUSED = "a refusal"
    """A backend took calls and refuses to compile them."""
    ERROR = "an error"
    """Lowering, loading or running raises something else."""
    CRASHED = "a crash"
    """The process ended."""
    HANGS = "no answer"
    """The process did not answer in time."""


_NUMBER: Final = re.compile(r"_?\d+")


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a trial ended, and in words what was seen then; "" if it is right."""

    kind: Kind
    said: str = ""

    def __bool__(self) -> bool:
        """Whether something is wrong."""
        return self.kind is not Kind.RIGHT

    def is_like(self, other: Verdict) -> bool:
        """Whether both show the same fault: of a refusal and an error, the words are the same but for numbers, which
        are in the names of nodes too."""
        told = self.kind in (Kind.REFUSED, Kind.ERROR)
        return self.kind is other.kind and (not told or self._gist == other._gist)

    @property
    def _gist(self) -> str:
        return _NUMBER.sub("", self.said.partition("\n")[0])
