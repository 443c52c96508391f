"""Results -> a report: Markdown, JSON, and a badge (SVG)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from delegraph_testkit.checks import Check, is_claimed
from delegraph_testkit.outcomes import Level, Outcome, Result
from delegraph_testkit.subject import Subject

__all__ = ["ConformanceReport", "badge"]


@dataclass(frozen=True, slots=True)
class ConformanceReport:
    """The results of a subject's checks. `checks` are all of them, run or not, of which shares are counted."""

    subject: Subject
    provider: str
    checks: Sequence[Check]
    results: Sequence[Result]

    @property
    def planned(self) -> dict[Level, int]:
        """How many checks each level has."""
        counted = Counter(check.level for check in self.checks)
        return {level: counted[level] for level in sorted(counted)}

    @property
    def faults(self) -> list[Result]:
        """The results that count against the plug-in."""
        return [result for result in self.results if result.is_fault]

    @property
    def level(self) -> Level | None:
        """The highest level that is proven: of it and of those before it, all that is claimed was run, nothing is a
        fault, and some of the due checks passed (without claims no operator is due)."""
        reached, by_check = None, {result.check: result for result in self.results}
        for level in self.planned:
            due = [check.id for check in self.checks if check.level == level and is_claimed(check, self.subject.claims)]
            results = [by_check[check] for check in due if check in by_check]
            passed = not due or any(result.outcome is Outcome.PASSED for result in results)
            if len(results) < len(due) or not passed or any(r.is_fault for r in self.results if r.level == level):
                break
            reached = level
        return reached

    def counts(self, level: Level) -> Counter[Outcome]:
        """The number of a level's checks by outcome; those that were not run are unclaimed."""
        counted = Counter(result.outcome for result in self.results if result.level == level)
        counted[Outcome.UNCLAIMED] += self.planned[level] - counted.total()
        return counted

    @property
    def verdict(self) -> str:
        """`models · 412 of 2,310 operators`: the badge's text."""
        if self.faults:
            return f"{len(self.faults)} faults" if len(self.faults) > 1 else "1 fault"
        said = str(self.level) if self.level else "nothing proven"
        passed = self.counts(Level.OPERATORS)[Outcome.PASSED] if Level.OPERATORS in self.planned else 0
        return f"{said} · {passed:,} of {self.planned[Level.OPERATORS]:,} operators" if passed else said

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, strings and numbers."""
        return {
            "plugin": f"{self.subject.group}:{self.subject.name}",
            "kind": self.subject.kind.value,
            "distribution": self.provider,
            "testkit": version("delegraph-testkit"),
            "delegraph": version("delegraph"),
            "torch": version("torch"),
            "level": str(self.level) if self.level else None,
            "verdict": self.verdict,
            "levels": {
                str(level): {"checks": self.planned[level], **{o.value: self.counts(level)[o] for o in Outcome}}
                for level in self.planned
            },
            "results": [
                {
                    "check": result.check,
                    "outcome": result.outcome.value,
                    "detail": result.detail,
                    "seconds": round(result.seconds, 3),
                    "expected_failure": result.excused,
                }
                for result in self.results
            ],
        }

    def to_markdown(self) -> str:
        """A table by level, then every fault, the declined checks with their reasons, and the measurements."""
        rows = [
            [str(level), str(self.planned[level]), *(str(self.counts(level)[outcome]) for outcome in Outcome)]
            for level in self.planned
        ]
        head = ["level", "checks", *(outcome.value for outcome in Outcome)]
        lines = [
            f"# {self.subject.name}: {self.verdict}",
            "",
            f"{self.provider}, proven by delegraph-testkit {version('delegraph-testkit')} with Delegraph"
            f" {version('delegraph')} and torch {version('torch')}.",
            "",
            *_table(head, rows),
        ]
        for title, chosen in (
            ("Faults", self.faults),
            ("Expected failures", [result for result in self.results if result.excused]),
            ("Declined", [result for result in self.results if result.outcome is Outcome.DECLINED]),
            ("Told", [r for r in self.results if r.detail and r.outcome in (Outcome.PASSED, Outcome.UNCLAIMED)]),
        ):
            if chosen:
                told = [
                    [f"`{result.check}`", result.outcome.value, result.excused or result.detail] for result in chosen
                ]
                lines += ["", f"## {title}", "", *_table(["check", "outcome", "what of it"], told)]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path) -> list[Path]:
        """Write `NAME.md`, `NAME.json` and `NAME.svg` there; their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{self.subject.kind.value}-{self.subject.name}"
        texts = {
            "md": self.to_markdown(),
            "json": json.dumps(self.to_json(), indent=1) + "\n",
            "svg": badge(self.verdict, good=not self.faults and self.level is not None),
        }
        for suffix, text in texts.items():
            (folder / f"{stem}.{suffix}").write_text(text, "utf-8")
        return [folder / f"{stem}.{suffix}" for suffix in texts]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in line) + " |" for line in lines]


_CHARACTER: Final = 6.6
"""Pixels of a character of 11 px Verdana, on average."""

_BADGE: Final = """<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img">
<title>{label}: {text}</title>
<rect rx="3" width="{width}" height="20" fill="#555"/>
<rect rx="3" x="{split}" width="{rest}" height="20" fill="{colour}"/>
<rect x="{split}" width="4" height="20" fill="{colour}"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,Geneva,sans-serif" font-size="11">
<text x="{left}" y="14">{label}</text>
<text x="{right}" y="14">{text}</text>
</g>
</svg>
"""


def badge(text: str, good: bool) -> str:
    """An SVG image: "delegraph" on the left, `text` on the right, green or red."""
    label = "delegraph"
    split, rest = (round(len(part) * _CHARACTER) + 12 for part in (label, text))
    colour = "#2a7d2e" if good else "#b3261e"
    return _BADGE.format(
        label=label,
        text=escape(text),
        width=split + rest,
        split=split,
        rest=rest,
        colour=colour,
        left=split / 2,
        right=split + rest / 2,
    )
