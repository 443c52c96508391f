"""How a run of ExecuTorch's tests is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugins.executorch.tests.upstream.results import Reason, read_outcomes, read_reasons, reason_for, share, stale

SESSION_A = """<testsuites><testsuite>
<testcase classname="ported.exir.tests.test_a.TestA" name="test_one"/>
<testcase classname="ported.exir.tests.test_a.TestA" name="test_two[3]"><failure message="no"/></testcase>
<testcase classname="ported.exir.tests.test_a" name="test_alone"><skipped message="later"/></testcase>
</testsuite></testsuites>"""

SESSION_B = """<testsuites><testsuite>
<testcase classname="" name="ported.exir.tests.test_b"><error message="ImportError"/></testcase>
</testsuite></testsuites>"""

TEST_B = """
import nothing_of_the_kind

class TestB:
    def test_three(self): ...
    def helper(self): ...

def test_four(): ...
"""


@pytest.fixture
def outcomes(tmp_path: Path) -> dict[str, str]:
    tests = tmp_path / "ported" / "exir" / "tests"
    tests.mkdir(parents=True)
    (tests / "test_a.py").write_text("")
    (tests / "test_b.py").write_text(TEST_B)
    (tmp_path / "a.xml").write_text(SESSION_A)
    (tmp_path / "b.xml").write_text(SESSION_B)
    return read_outcomes([tmp_path / "a.xml", tmp_path / "b.xml"], tmp_path / "ported")


def test_outcomes_have_the_names_that_pytest_shows(outcomes: dict[str, str]) -> None:
    assert outcomes == {
        "exir/tests/test_a.py::TestA::test_one": "passed",
        "exir/tests/test_a.py::TestA::test_two[3]": "failed",
        "exir/tests/test_a.py::test_alone": "skipped",
        "exir/tests/test_b.py::TestB::test_three": "error",
        "exir/tests/test_b.py::test_four": "error",
    }


def listed(folder: Path, text: str) -> dict[str, Reason]:
    (folder / "area.toml").write_text(text)
    return read_reasons([folder / "area.toml"])


def test_a_reason_is_found_by_test_and_by_file(tmp_path: Path) -> None:
    reasons = listed(
        tmp_path,
        """
        "exir/tests/test_a.py::TestA::test_two" = "differs on purpose: threes are refused"
        "exir/tests/test_b.py" = "internal of ExecuTorch"
        """,
    )
    of_a_test = reason_for("exir/tests/test_a.py::TestA::test_two[3]", reasons)
    assert of_a_test is not None and of_a_test.kind == "differs on purpose"
    of_a_file = reason_for("exir/tests/test_b.py::TestB::test_three", reasons)
    assert of_a_file is not None and of_a_file.kind == "internal of ExecuTorch"
    assert reason_for("exir/tests/test_a.py::TestA::test_one", reasons) is None


def test_what_passes_or_is_not_there_is_stale(outcomes: dict[str, str], tmp_path: Path) -> None:
    reasons = listed(
        tmp_path,
        """
        "exir/tests/test_a.py" = "internal of ExecuTorch"
        "exir/tests/test_a.py::TestA::test_two" = "internal of ExecuTorch"
        "exir/tests/test_b.py" = "internal of ExecuTorch"
        "exir/tests/test_c.py" = "internal of ExecuTorch"
        """,
    )
    assert stale(outcomes, reasons) == ["exir/tests/test_a.py", "exir/tests/test_c.py"]


def test_what_fails_by_chance_may_pass_and_has_to_be_there(outcomes: dict[str, str], tmp_path: Path) -> None:
    reasons = listed(
        tmp_path,
        """
        "exir/tests/test_a.py" = "by chance: of unseeded numbers"
        "exir/tests/test_c.py" = "by chance: of unseeded numbers"
        """,
    )
    assert stale(outcomes, reasons) == ["exir/tests/test_c.py"]


def test_the_share_is_of_both_environments_and_of_all_but_internals(outcomes: dict[str, str], tmp_path: Path) -> None:
    reasons = listed(
        tmp_path,
        """
        "exir/tests/test_a.py::TestA::test_two" = "needs ExecuTorch's wheel: lowers onto XNNPACK"
        "exir/tests/test_b.py::TestB::test_three" = "internal of ExecuTorch"
        "exir/tests/test_b.py::test_four" = "needs torchvision"
        """,
    )
    figure = share(outcomes, reasons)
    assert (figure.passed, figure.total) == (2, 3)
    assert str(figure).startswith("2 of 3 that don't test internals pass (66.7%): ")


@pytest.mark.parametrize("text", ["because", "differs on purpose", "differs on purpose, somehow", "lacking"])
def test_a_reason_has_a_class_and_says_what_differs(text: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is none of"):
        listed(tmp_path, f'"exir/tests/test_a.py" = "{text}"')
