"""An author's test class -> tests, one for each check of the kit.

    from delegraph_testkit import BackendConformance

    class TestMyBackend(BackendConformance):
        name = "acme"
        claims = "conformance.toml"

The pytest plug-in makes a test of each check. The class is an ordinary test class of pytest, so that `-k`, `-x`, xdist
and overriding work as everywhere.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from delegraph_testkit.checks import Check, checks_of, is_claimed
from delegraph_testkit.claims import Claims
from delegraph_testkit.outcomes import Level, Outcome
from delegraph_testkit.session import Session
from delegraph_testkit.subject import Kind, Subject, subjects_called

__all__ = [
    "BackendConformance",
    "KernelsConformance",
    "MemoryPlannerConformance",
    "PartitionerConformance",
    "PassConformance",
    "QuantizerConformance",
    "ToolConformance",
    "claimed_checks",
    "subject_of",
]


class _Conformance:
    """`name` is the entry point's; `claims` are a `Claims`, a mapping of conformance.toml's form, the path of such a
    file from the test module, or None for the one in the plug-in's package. Checks above `level` are left out;
    `timeout` is in seconds for each.
    """

    kind: ClassVar[Kind]
    name: ClassVar[str]
    claims: ClassVar[Claims | Mapping[str, Any] | str | None] = None
    level: ClassVar[str] = "models"
    timeout: ClassVar[float] = 120.0

    def test_conformance(self, conformance_session: Session, conformance_check: Check) -> None:
        """One check of the kit."""
        result = conformance_session.result(conformance_check)
        if result.excused:
            pytest.xfail(f"{result.excused}: {result.detail}")
        if result.is_fault:
            pytest.fail(
                f"{result.check} {result.outcome.value}: {result.detail}\n{conformance_check.wants}", pytrace=False
            )
        if result.outcome is not Outcome.PASSED:
            pytest.skip(f"{result.outcome.value}: {result.detail}")


class BackendConformance(_Conformance):
    """Proves a backend: both halves. `name` is that of its partitioner, which users write in `backends=[…]`."""

    kind = Kind.BACKEND


class KernelsConformance(_Conformance):
    """Proves a kernel library."""

    kind = Kind.KERNELS


class PartitionerConformance(_Conformance):
    """Proves a partitioner that works for other distributions' backends."""

    kind = Kind.PARTITIONER


class QuantizerConformance(_Conformance):
    """Proves a quantizer."""

    kind = Kind.QUANTIZER


class PassConformance(_Conformance):
    """Proves a pass."""

    kind = Kind.PASS


class MemoryPlannerConformance(_Conformance):
    """Proves a memory planner."""

    kind = Kind.PLANNER


class ToolConformance(_Conformance):
    """Proves a tool. `name` is its entry point's in `delegraph.plugins`."""

    kind = Kind.TOOL


def subject_of(tests: type[_Conformance]) -> Subject:
    """The subject of a test class. Raises `PluginNotFound` or `ClaimsError`."""
    installed = (subject for subject in subjects_called(tests.name, _claims(tests)) if subject.kind is tests.kind)
    return next(installed, None) or Subject(tests.kind, tests.name, _claims(tests) or Claims())


def _claims(tests: type[_Conformance]) -> Claims | None:
    claims = tests.claims
    if isinstance(claims, str):
        return Claims.read(Path(inspect.getfile(tests)).parent / claims)
    return Claims.from_mapping(claims) if isinstance(claims, Mapping) else claims


def claimed_checks(tests: type[_Conformance]) -> Sequence[Check]:
    """The checks that become tests: all but those of operators that nobody claims."""
    subject = subject_of(tests)
    checks = [check for check in checks_of(subject) if check.level <= Level[tests.level.upper()]]
    return [check for check in checks if is_claimed(check, subject.claims)]
