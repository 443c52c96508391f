"""`delegraph plugins check NAME --run`: how far it is, and what is left of it when it is ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delegraph_testkit import progress
from delegraph_testkit.checks import Check
from delegraph_testkit.claims import ClaimsWarning
from delegraph_testkit.command import main
from delegraph_testkit.outcomes import Outcome, Result
from delegraph_testkit.session import Session


def _results_until(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Checks fail at once; the one with `number` is ended by Ctrl-C."""
    results: list[Result] = []

    def result(session: Session, check: Check) -> Result:
        if len(results) == number:
            raise KeyboardInterrupt
        results.append(Result(check.id, check.level, Outcome.FAILED, "as told", 0.0, ""))
        session._results = results
        return results[-1]

    monkeypatch.setattr(Session, "result", result)


def test_an_ended_run_keeps_what_it_knows(
    install: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install()
    _results_until(monkeypatch, 3)
    monkeypatch.setattr(progress, "_EVERY", -1.0)
    with pytest.warns(ClaimsWarning, match=r"calc is proven without claims, so that no operator is tried: calc_aot:"):
        assert main("partitioners:calc", ["--report", str(tmp_path / "report")]) == 130
    report = json.loads((tmp_path / "report" / "backend-calc.json").read_text("utf-8"))
    assert [result["detail"] for result in report["results"]] == ["as told"] * 3
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("calc: 1 of ") and told[0].endswith("checks, 1 faults; loads/both_halves_are_installed")
    assert told[1] == "failed: loads/both_halves_are_installed: as told"
