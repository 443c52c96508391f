"""A report on everything -> the conformance.toml that it supports: claims that passed, and claims that would."""

from __future__ import annotations

import json
from collections.abc import Iterable

from delegraph_testkit.claims import FEATURES
from delegraph_testkit.outcomes import Level, Outcome
from delegraph_testkit.report import ConformanceReport

__all__ = ["proposed"]


def proposed(report: ConformanceReport) -> str:
    """The text of a conformance.toml with the claims that hold, and all other claims as they were."""
    claims = report.subject.claims
    holds = {r.check for r in report.results if r.outcome in (Outcome.PASSED, Outcome.UNCLAIMED) and not r.is_fault}
    operators: dict[str, list[str]] = {}
    for check in report.checks:
        if check.level is Level.OPERATORS and check.id in holds:
            entry, dtype = check.arguments[:2]
            operators.setdefault(entry, []).append(dtype)
    shown = [check for check in report.checks if check.arguments and check.arguments[0] in FEATURES]
    features = [name for name in FEATURES if _all_hold(report, (c.id for c in shown if c.arguments[0] == name))]
    lines = ["[features]", *(f"{name} = {str(name in features).lower()}" for name in FEATURES), "", "[operators]"]
    lines += [f"{_key(entry)} = {json.dumps(dtypes)}" for entry, dtypes in operators.items()]
    settings = {"models": list(claims.models), "quantizer": claims.quantizer}
    head = [f"{name} = {json.dumps(value)}" for name, value in settings.items() if value]
    for table in ("options", "tolerances", "expected_failures"):
        if rows := getattr(claims, table):
            lines += ["", f"[{table}]", *(f"{_key(name)} = {json.dumps(value)}" for name, value in rows.items())]
    return "\n".join([*head, *([""] if head else []), *lines]) + "\n"


def _all_hold(report: ConformanceReport, checks: Iterable[str]) -> bool:
    """Whether all of these passed for a claim, or would."""
    required, claims = set(checks), report.subject.claims
    due = {Outcome.PASSED, Outcome.UNCLAIMED}
    results = [r for r in report.results if r.check in required]
    told = all(r.outcome is Outcome.UNCLAIMED or _feature(report, r.check) in claims.features for r in results)
    return (
        bool(results)
        and len(results) == len(required)
        and told
        and all(r.outcome in due and not r.is_fault for r in results)
    )


def _feature(report: ConformanceReport, name: str) -> str:
    return next(check.arguments[0] for check in report.checks if check.id == name)


def _key(name: str) -> str:
    return name if name.replace("_", "").isalnum() else json.dumps(name)
