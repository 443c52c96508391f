"""The differences between two programs as records, tables and JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from delegraph.tables import Table

__all__ = ["Change", "Kind", "ProgramDiff"]


class Kind(StrEnum):
    """The part of a program that differs."""

    METADATA = "metadata"
    """The author's words about the model."""
    METHOD = "method"
    INPUT = "input"
    OUTPUT = "output"
    OPERATOR = "operator"
    """How often an engine, or the kernels, run an operator."""
    PLACEMENT = "placement"
    """An operator of the model that is run elsewhere."""
    DELEGATE = "delegate"
    WEIGHT = "weight"
    MEMORY = "memory"
    SIZE = "size"
    CONTENT = "content"
    """Any bytes and records that differ, also where nothing tells in what."""


_TITLES: Final = {
    Kind.METADATA: "what the author says",
    Kind.METHOD: "methods",
    Kind.INPUT: "inputs",
    Kind.OUTPUT: "outputs",
    Kind.OPERATOR: "operators",
    Kind.PLACEMENT: "operators of the model that run elsewhere",
    Kind.DELEGATE: "delegates",
    Kind.WEIGHT: "weights",
    Kind.MEMORY: "planned memory, in bytes",
    Kind.SIZE: "sizes, in bytes",
    Kind.CONTENT: "bytes, by digest",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: of `what`, from `before` to `after`, "" for what is not there. `how` says more in words."""

    kind: Kind
    what: str
    before: str
    after: str
    how: str = ""


@dataclass(frozen=True)
class ProgramDiff:
    """All differences between two programs. No differences, no changes: it is false then.

    Debug data is not compared: a line that has moved makes no other program.
    """

    changes: tuple[Change, ...]

    def __bool__(self) -> bool:
        return bool(self.changes)

    def of(self, kind: Kind) -> tuple[Change, ...]:
        """The differences of one kind."""
        return tuple(change for change in self.changes if change.kind is kind)

    def tables(self) -> Iterator[Table]:
        """A table for each kind of which there are differences."""
        for kind, title in _TITLES.items():
            rows = [(change.what, change.before, change.after, change.how) for change in self.of(kind)]
            if rows:
                columns = ("", "before", "after", *([""] if any(row[3] for row in rows) else []))
                yield Table(title, columns, [row[: len(columns)] for row in rows])

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists and strings."""
        return {"equal": not self, "changes": [asdict(change) for change in self.changes]}

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables())) or "the programs are equal"

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        from delegraph.notebook import paragraph, table

        return "".join(map(table, self.tables())) or paragraph(str(self))
