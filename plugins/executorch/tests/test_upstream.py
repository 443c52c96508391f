"""ExecuTorch's own tests, imports changed, pass here: all but those that cannot_pass/ lists with a reason each."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugins.executorch.tests.upstream.results import Reason, read_outcomes, reason_for, share, stale
from plugins.executorch.tests.upstream.suite import APART, port_suite, reasons_of_tests, run_sessions

pytestmark = pytest.mark.executorch


@pytest.fixture(scope="module")
def outcomes(executorch_package: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    scratch = tmp_path_factory.mktemp("upstream")
    ported = port_suite(scratch)
    return read_outcomes(run_sessions(scratch, "-n", "2", "--tb=no"), ported)


@pytest.fixture(scope="module")
def reasons() -> dict[str, Reason]:
    return reasons_of_tests()


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


def test_most_pass_of_those_that_do_not_test_internals(
    outcomes: dict[str, str], reasons: dict[str, Reason], capsys: pytest.CaptureFixture[str]
) -> None:
    """Here or in the wheel's environment, of all others."""
    figure = share(outcomes, reasons)
    with capsys.disabled():
        print(f"\nExecuTorch's own tests: {figure}")
    assert figure.passed >= 0.93 * figure.total
