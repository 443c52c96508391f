"""A sound backend passes every check, and each check catches the fault that it is there for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delegraph_testkit.checks import checks_of
from delegraph_testkit.claims import Claims
from delegraph_testkit.outcomes import Level, Outcome
from delegraph_testkit.subject import Kind, Subject

Install = Callable[..., Any]
SOUND = [
    check.id
    for check in checks_of(Subject(Kind.BACKEND, "calc", Claims()))
    if check.level in (Level.LOADS, Level.CONTRACT)
]

WRITES = "context.resize(out, values[name].shape)[...] = values[name]"

FAULTS = [
    (
        "contract/outputs_are_written",
        {"runtime": (WRITES, "pass")},
        "elements are wrong",
    ),
    (
        "contract/inputs_are_left_alone",
        {"runtime": ("        values = {", "        args[0][...] = 0\n        values = {")},
        "read-only",
    ),
]


def test_a_sound_backend(install: Install) -> None:
    calc = install()
    results = {name: calc.result(name) for name in SOUND}
    assert {name: r.detail for name, r in results.items() if r.outcome is not Outcome.PASSED} == {}


@pytest.mark.parametrize(("check", "changes", "message"), FAULTS, ids=[fault[0].partition("/")[2] for fault in FAULTS])
def test_a_fault_is_caught(install: Install, check: str, changes: dict[str, tuple[str, str]], message: str) -> None:
    result = install(**changes).result(check)
    assert result.outcome is Outcome.FAILED
    assert message in result.detail
