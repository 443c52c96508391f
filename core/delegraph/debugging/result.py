"""The faults of a model's backends, each with the smallest part that shows it: text for people, JSON for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from delegraph import notebook
from delegraph.debugging.verdict import Verdict

__all__ = ["Debugged", "Fault", "FaultyCall"]


@dataclass(frozen=True, slots=True)
class FaultyCall:
    """A call of the smallest part: its name in the program, its operator, and its line in the user's code, "" if it
    has none."""

    name: str
    operator: str
    location: str = ""

    def __str__(self) -> str:
        return f"{self.operator}  {self.location or self.name}"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of `backends`, in the smallest part of a method that shows it.

    `total` is the number of calls of the partition, or of the whole method, that the part was cut out of, which are all
    of its calls where `calls` is empty. `folder` is where the script is; "" where none was asked for. `note` is what
    else there is to know.
    """

    method: str
    backends: str
    verdict: Verdict
    calls: tuple[FaultyCall, ...]
    total: int
    folder: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        """`cpu: wrong numbers`."""
        return f"{self.backends or 'kernels'}: {self.verdict.kind.value}"

    def written(self, folder: str, note: str) -> Fault:
        """The same with its script."""
        return replace(self, folder=folder, note=note)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "method": self.method,
            "backends": self.backends,
            "kind": self.verdict.kind.name.lower(),
            "said": self.verdict.said,
            "calls": [{"name": call.name, "operator": call.operator, "location": call.location} for call in self.calls],
            "total_calls": self.total,
            "folder": self.folder,
            "note": self.note,
        }

    def __str__(self) -> str:
        share = f"in {len(self.calls)} of {self.total} calls" if self.calls else f"in its {self.total} calls"
        lines = [f"{self.method}: {self.name}, {share}", *(f"  {call}" for call in self.calls)]
        lines += [f"    {line}" for line in self.verdict.said.splitlines() if line.strip()]
        lines += [f"  {self.note}"] if self.note else []
        lines += [f"  shown by: python {self.folder}/repro.py"] if self.folder else []
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Debugged:
    """The faults that were seen; none if all is right. `partitions` has by method, for each delegate, the backend and
    its number of calls; `trials` is how many programs were tried."""

    faults: tuple[Fault, ...]
    partitions: Mapping[str, Sequence[tuple[str, int]]]
    trials: int

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return {
            "faults": [fault.to_json() for fault in self.faults],
            "partitions": {
                method: [{"backend": backend, "calls": calls} for backend, calls in own]
                for method, own in self.partitions.items()
            },
            "trials": self.trials,
        }

    def __bool__(self) -> bool:
        """Whether there are faults."""
        return bool(self.faults)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.faults)) or "\n".join(self._right())

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        return "".join(map(notebook.paragraph, str(self).split("\n")))

    def _right(self) -> list[str]:
        return [
            f"{method}: right, within tolerance of torch: {_counted(own)}" for method, own in self.partitions.items()
        ]


def _counted(partitions: Sequence[tuple[str, int]]) -> str:
    backends = dict.fromkeys(backend for backend, _ in partitions)
    told = [
        f"{sum(count for backend, count in partitions if backend == name)} calls in"
        f" {sum(backend == name for backend, _ in partitions)} partitions of {name}"
        for name in backends
    ]
    return ", ".join([*told, "and the whole"]) if told else "the whole, of which no backend takes a call"
