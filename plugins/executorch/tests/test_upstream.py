"""ExecuTorch's own tests, imports changed, pass here: all but those that cannot_pass/ lists with a reason each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from plugins.executorch.tests.upstream.results import (
    DIFFERS,
    LACKING,
    Reason,
    read_outcomes,
    read_reasons,
    reason_for,
    stale,
)
from plugins.executorch.tests.upstream.suite import APART, port_suite, run_sessions

pytestmark = pytest.mark.executorch

LISTS = Path(__file__).parent / "upstream" / "cannot_pass"
OURS = ("failed", "error", DIFFERS, LACKING)
"""Outcomes, and reasons, that are ours to change."""
NOT_TESTS = frozenset({"names.toml", "documentation.toml"})
"""Lists beside the tests': public names, and pieces of documentation."""


@pytest.fixture(scope="module")
def outcomes(executorch_package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    scratch = tmp_path_factory.mktemp("upstream")
    ported = port_suite(scratch)
    return read_outcomes(run_sessions(scratch, "-n", "2", "--tb=no"), ported)


@pytest.fixture(scope="module")
def reasons() -> dict[str, Reason]:
    return read_reasons(path for path in sorted(LISTS.glob("*.toml")) if path.name not in NOT_TESTS)


def test_what_is_not_listed_passes(outcomes: dict[str, str], reasons: dict[str, Reason]) -> None:
    failing = [
        f"{outcome}: {test}"
        for test, outcome in outcomes.items()
        if outcome not in ("passed", "skipped") and reason_for(test, reasons) is None
    ]
    assert not failing, "\n".join(failing)


@pytest.mark.parametrize("file", ["exir/program/test/test_program.py", "exir/_serialize/test/test_program.py", *APART])
def test_files_of_one_name_or_one_library_run_each_as_themselves(
    file: str, outcomes: dict[str, str], executorch_package: Path
) -> None:
    written = [
        line for line in (executorch_package / file).read_text().splitlines() if line.startswith("    def test_")
    ]
    ran = {test: outcome for test, outcome in outcomes.items() if test.startswith(f"{file}::")}
    assert len(ran) == len(written)
    assert "error" not in ran.values()


def test_what_is_listed_does_not_pass(outcomes: dict[str, str], reasons: dict[str, Reason]) -> None:
    assert stale(outcomes, reasons) == []


def test_nine_in_ten_pass_of_those_that_could(
    outcomes: dict[str, str], reasons: dict[str, Reason], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of those that neither test internals nor need ExecuTorch's binaries, its other packages or a bug of its own."""
    counts: Counter[str] = Counter()
    for test, outcome in outcomes.items():
        reason = reason_for(test, reasons)
        counts[reason.kind if reason is not None and outcome != "skipped" else outcome] += 1
    with capsys.disabled():
        print("\nExecuTorch's own tests:", ", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    assert counts["passed"] >= 0.9 * (counts["passed"] + sum(counts[kind] for kind in OURS))
