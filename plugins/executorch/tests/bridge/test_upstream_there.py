"""ExecuTorch's own tests that need its wheel, imports changed, pass where it is: all that are listed as such."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from plugins.executorch.tests.upstream.results import WHEEL, Reason, read_outcomes, reason_for
from plugins.executorch.tests.upstream.suite import port_suite, reasons_of_tests, run_sessions

pytestmark = pytest.mark.executorch


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    scratch = tmp_path_factory.mktemp("upstream")
    ported = port_suite(scratch)
    tests = [test for test, reason in reasons_of_tests().items() if reason.kind == WHEEL]
    return read_outcomes(run_sessions(scratch, "--tb=short", "-W", "ignore", tests=tests), ported)


def test_what_needs_the_wheel_passes_with_it(outcomes: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    reasons = reasons_of_tests()
    there = {test: outcome for test, outcome in outcomes.items() if _kind(test, reasons) == WHEEL}
    with capsys.disabled():
        print(f"\nExecuTorch's own tests that need its wheel: {list(there.values()).count('passed')} pass")
    failing = {test: outcome for test, outcome in there.items() if outcome not in ("passed", "skipped")}
    assert not failing


def test_each_of_them_ran(outcomes: dict[str, str]) -> None:
    for test, reason in reasons_of_tests().items():
        if reason.kind == WHEEL:
            assert any(f"{ran}::".startswith(f"{test}::") for ran in outcomes), test


def _kind(test: str, reasons: Mapping[str, Reason]) -> str:
    reason = reason_for(test, reasons)
    return "" if reason is None else reason.kind
