"""Measurements -> a table for people, JSON for machines, and the fastest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delegraph import notebook
from delegraph.aot.lower import Lowered
from delegraph.comparison.timing import Times
from delegraph.errors import LoweringError
from delegraph.tables import Table, count, milliseconds, print_table

__all__ = ["Compared", "Comparison"]


@dataclass(frozen=True, slots=True)
class Compared:
    """One way to lower a model, and what it costs here. Without `times` it could not be lowered or run: `problem`.

    times: by method. sqnr: signal to noise, in dB, of all its outputs in floating point against torch's of the model as
    it was given, `10 log10(Σ y² / Σ (y - y')²)`; None where there are none. nbytes: of the file, with its external
    weights; planned_nbytes: of planned memory, all methods together.
    """

    backends: str
    recipe: str
    problem: str = ""
    lowered: Lowered | None = None
    times: Mapping[str, Times] | None = None
    sqnr: float | None = None
    nbytes: int = 0
    planned_nbytes: int = 0

    @property
    def seconds(self) -> float:
        """The time of an execution, all methods added up; infinite where it could not run."""
        return sum(times.seconds for times in self.times.values()) if self.times else math.inf

    @property
    def spread(self) -> float:
        """The spread of the rounds, as a share: the largest of the methods'."""
        return max((times.spread for times in (self.times or {}).values()), default=0.0)

    @property
    def left_nodes(self) -> int:
        """Calls that no backend took, which kernels run."""
        return sum(len(method.leftovers) for method in self.lowered.report.methods.values()) if self.lowered else 0

    @property
    def name(self) -> str:
        """Backends and recipe."""
        return f"{self.backends}, {self.recipe}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; seconds and bytes."""
        return {
            "backends": self.backends,
            "recipe": self.recipe,
            "problem": self.problem,
            "methods": {method: _times_json(times) for method, times in (self.times or {}).items()},
            "sqnr": self.sqnr if self.sqnr is None or math.isfinite(self.sqnr) else str(self.sqnr),
            "nbytes": self.nbytes,
            "planned_nbytes": self.planned_nbytes,
            "left_nodes": self.left_nodes,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """All candidates, the fastest first, those that could not run at the end."""

    candidates: Sequence[Compared]

    def fastest(self, min_sqnr: float | None = None) -> Compared:
        """The fastest; with `min_sqnr`, of those whose outputs are no further than that from the model's, in dB.

        Raises `LoweringError` where there is none, with each one's reason.
        """
        for candidate in self.candidates:
            if candidate.times and _is_near(candidate, min_sqnr):
                return candidate
        reasons = [f"  {each.name}: {each.problem or f'{_sqnr(each)} dB'}" for each in self.candidates]
        ran = any(each.times for each in self.candidates)
        what = f"computes what the model does to within {min_sqnr:g} dB" if ran else "could be lowered and run"
        raise LoweringError("\n".join([f"no candidate {what}", *reasons]))

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return {"candidates": [candidate.to_json() for candidate in self.candidates]}

    def __repr__(self) -> str:
        return f"Comparison({'; '.join(candidate.name for candidate in self.candidates)})"

    def __str__(self) -> str:
        return "\n\n".join([str(self._table()), *self._remarks()])

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        return "".join([notebook.table(self._table()), *map(notebook.paragraph, self._remarks())])

    def print(self) -> None:
        """Print to the terminal: with rich where it is installed, else as plain text."""
        print_table(self._table())
        for remark in self._remarks():
            print(remark)

    def _table(self) -> Table:
        measured = [candidate for candidate in self.candidates if candidate.times]
        methods = list(measured[0].times or {}) if measured else []
        numbers = (*methods, "±", "slower", "load", "first", "peak MiB", "file bytes", "left nodes", "SQNR dB")
        rows = [(candidate.backends, candidate.recipe, *_cells(candidate, measured[0])) for candidate in measured]
        return Table("", ("backends", "recipe", *numbers), rows, frozenset(numbers))

    def _remarks(self) -> list[str]:
        measured = [candidate for candidate in self.candidates if candidate.times]
        remarks = [f"{candidate.name}: {candidate.problem}" for candidate in self.candidates if candidate.problem]
        if len(measured) > 1 and _is_a_draw(*measured[:2]):
            remarks.append(f"{measured[0].name} and {measured[1].name} differ by no more than their own rounds do.")
        return remarks


def _is_near(candidate: Compared, min_sqnr: float | None) -> bool:
    return min_sqnr is None or candidate.sqnr is None or candidate.sqnr >= min_sqnr


def _is_a_draw(first: Compared, second: Compared) -> bool:
    return second.seconds / first.seconds - 1 <= max(first.spread, second.spread)


def _cells(candidate: Compared, fastest: Compared) -> list[str]:
    assert candidate.times
    times = list(candidate.times.values())
    peaks = [each.peak_memory for each in times if each.peak_memory is not None]
    return [
        *(milliseconds(each.seconds) for each in times),
        f"{candidate.spread:.0%}",
        f"{candidate.seconds / fastest.seconds:.2f}x",
        milliseconds(max(each.load for each in times)),
        milliseconds(max(each.first for each in times)),
        f"{max(peaks) / 2**20:,.0f}" if peaks else "",
        count(candidate.nbytes),
        count(candidate.left_nodes),
        _sqnr(candidate),
    ]


def _sqnr(candidate: Compared) -> str:
    if candidate.sqnr is None:
        return ""
    return "∞" if candidate.sqnr == math.inf else f"{candidate.sqnr:.1f}"


def _times_json(times: Times) -> dict[str, object]:
    return {
        "seconds": times.seconds,
        "turns": list(times.turns),
        "load_seconds": times.load,
        "first_seconds": times.first,
        "peak_memory_nbytes": times.peak_memory,
    }
