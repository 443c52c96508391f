"""A run of ExecuTorch's ported tests -> the outcome of each; the files of cannot_pass/ -> which need not pass, and why.

# cannot_pass/passes.toml
"exir/tests/test_passes.py::TestPasses::test_x" = "differs on purpose: a pass edits the graph in place"
"exir/serde/test/test_serde.py" = "internal of ExecuTorch"                     # every test of a file
"""

from __future__ import annotations

import ast
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

__all__ = [
    "CHANCE",
    "CLASSES",
    "DIFFERS",
    "INTERNAL",
    "LACKING",
    "WHEEL",
    "Reason",
    "Share",
    "read_outcomes",
    "read_reasons",
    "reason_for",
    "share",
    "stale",
]

INTERNAL: Final = "internal of ExecuTorch"
DIFFERS: Final = "differs on purpose"
LACKING: Final = "lacking"
WHEEL: Final = "needs ExecuTorch's wheel"
"""Passes where the wheel is installed, which `tests/bridge/test_upstream_there.py` checks."""

CHANCE: Final = "by chance"
"""Fails or passes by what this processor rounds: it is neither asked to pass nor to fail."""

CLASSES: Final = (
    INTERNAL,
    WHEEL,
    "needs ExecuTorch's C++ build or its flatc",
    DIFFERS,
    "bug of ExecuTorch's own",
    "needs torchvision",
    CHANCE,
    LACKING,
)
"""A reason begins with one of these; what follows its colon says more, and has to where something differs or lacks."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a test cannot pass, and in which file that stands."""

    kind: str
    text: str
    file: str


def read_outcomes(reports: Iterable[Path], ported: Path) -> dict[str, str]:
    """Test ("exir/tests/test_x.py::TestX::test_y") -> "passed", "failed", "error" or "skipped".

    `reports` are pytest's JUnit files, one of each session, `ported` is the folder with ExecuTorch's packages. A file
    that cannot be imported counts with every test that is written in it.
    """
    outcomes: dict[str, str] = {}
    for case in chain.from_iterable(ET.parse(report).iter("testcase") for report in reports):
        found = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        outcome = {"failure": "failed", "error": "error", "skipped": "skipped"}[found[0]] if found else "passed"
        classname = case.get("classname", "")
        module = _module_file(classname or case.get("name", ""), ported)
        if not classname:
            outcomes.update((test, outcome) for test in _written_tests(ported, module))
            continue
        inner = classname.removeprefix(f"{ported.name}.").removeprefix(module.removesuffix(".py").replace("/", "."))
        test = "::".join([module, *inner.strip(".").split(".")] if inner else [module]) + f"::{case.get('name')}"
        if outcomes.get(test, "passed") == "passed":  # a test may fail, and its tearing down too
            outcomes[test] = outcome
    return outcomes


def _module_file(dotted: str, ported: Path) -> str:
    """ "delegraph_executorch.exir.tests.test_x.TestX" -> "exir/tests/test_x.py"."""
    parts = dotted.split(".")[1:]
    for end in range(len(parts), 0, -1):
        path = Path(*parts[:end]).with_suffix(".py")
        if (ported / path).exists():
            return path.as_posix()
    raise LookupError(f"no file for {dotted}")


def _written_tests(ported: Path, module: str) -> Iterator[str]:
    """The tests written in a file, found without importing it; the file itself if there are none."""
    tests = list(_tests_in(ast.parse((ported / module).read_text(encoding="utf-8")).body, module))
    yield from tests or [module]


def _tests_in(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _tests_in(statement.body, f"{prefix}::{statement.name}")
        elif isinstance(statement, ast.FunctionDef) and statement.name.startswith("test"):
            yield f"{prefix}::{statement.name}"


def read_reasons(paths: Iterable[Path]) -> dict[str, Reason]:
    """What TOML files list. Raises `ValueError` for a name listed twice or a reason without a class."""
    reasons: dict[str, Reason] = {}
    for path in paths:
        for test, text in tomllib.loads(path.read_text(encoding="utf-8")).items():
            kind = next((kind for kind in CLASSES if text == kind or text.startswith(f"{kind}: ")), None)
            if kind is None or text in (CHANCE, DIFFERS, LACKING):
                raise ValueError(f'{path.name}: "{test}" = "{text}" is none of {CLASSES} with its explanation')
            if test in reasons:
                raise ValueError(f"{test} is in {path.name} and in {reasons[test].file}")
            reasons[test] = Reason(kind, text, path.name)
    return reasons


def reason_for(test: str, reasons: Mapping[str, Reason]) -> Reason | None:
    """The reason of a test, its class or its file; a test with parameters may be listed without them."""
    return next((reasons[name] for name in _names(test) if name in reasons), None)


def stale(outcomes: Mapping[str, str], reasons: Mapping[str, Reason]) -> list[str]:
    """What is listed although it passes, and not by chance, or is not there."""
    outcomes_of: dict[str, set[str]] = {name: set() for name in reasons}
    for test, outcome in outcomes.items():
        for name in _names(test):
            outcomes_of.get(name, set()).add(outcome)
    passing = {name for name, found in outcomes_of.items() if "passed" in found and reasons[name].kind != CHANCE}
    return [name for name, found in outcomes_of.items() if not found or name in passing]


@dataclass(frozen=True, slots=True)
class Share:
    """How many tests pass, here or where the wheel is, of all that don't test internals; and how many of each kind."""

    passed: int
    total: int
    kinds: Mapping[str, int]

    def __str__(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.kinds.items())
        return f"{self.passed} of {self.total} that don't test internals pass ({self.passed / self.total:.1%}): {kinds}"


def share(outcomes: Mapping[str, str], reasons: Mapping[str, Reason]) -> Share:
    """The figure of both environments. What a test itself skips (for another platform, say) is left out."""
    counts: Counter[str] = Counter()
    for test, outcome in outcomes.items():
        reason = reason_for(test, reasons)
        counts[reason.kind if reason is not None and outcome != "skipped" else outcome] += 1
    counted = counts.total() - counts[INTERNAL] - counts["skipped"]
    return Share(counts["passed"] + counts[WHEEL], counted, dict(counts.most_common()))


def _names(test: str) -> list[str]:
    """What may be listed for `test`: itself, without its parameters, its class, its file."""
    parts = test.split("[")[0].split("::")
    return list(dict.fromkeys([test, *("::".join(parts[:end]) for end in range(len(parts), 0, -1))]))
