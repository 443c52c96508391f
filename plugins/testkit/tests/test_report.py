"""Results -> level, verdict, Markdown, JSON and badge; arrays and how far they are apart."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import ml_dtypes
import numpy as np
import pytest

from delegraph_testkit.arrays import difference, load_arrays, save_arrays
from delegraph_testkit.checks import checks_of, is_claimed
from delegraph_testkit.claims import Claims
from delegraph_testkit.outcomes import Level, Outcome, Result
from delegraph_testkit.proposal import proposed
from delegraph_testkit.report import ConformanceReport
from delegraph_testkit.subject import Kind, Subject

CLAIMS = Claims(operators={"add": ("float32",)}, features=("dynamic_shapes",), models=("mine:model",))
SUBJECT = Subject(Kind.BACKEND, "acme", CLAIMS)
CHECKS = checks_of(SUBJECT)


def report(**outcomes: Outcome) -> ConformanceReport:
    """All that is due has passed, but for checks whose name is in `outcomes`."""
    due = [check for check in CHECKS if is_claimed(check, CLAIMS)]
    results = [
        Result(c.id, c.level, outcomes.get(c.name.replace("/", "_"), Outcome.PASSED), "because | of it") for c in due
    ]
    return ConformanceReport(SUBJECT, "acme 1.0", CHECKS, results)


def test_everything_holds() -> None:
    whole = report()
    assert whole.level is Level.MODELS
    assert whole.verdict == f"models · 1 of {whole.planned[Level.OPERATORS]:,} operators"
    assert whole.counts(Level.OPERATORS)[Outcome.UNCLAIMED] == whole.planned[Level.OPERATORS] - 1


@pytest.mark.parametrize(
    ("outcomes", "level", "verdict"),
    [
        ({"outputs_are_written": Outcome.FAILED}, Level.LOADS, "1 fault"),
        ({"add_float32": Outcome.CRASHED, "residual": Outcome.FAILED}, Level.PARTITIONS, "2 faults"),
        ({"branches": Outcome.DECLINED}, Level.MODELS, "models · 1 of "),
        ({"add_float32": Outcome.DECLINED}, Level.PARTITIONS, "partitions"),
    ],
)
def test_levels(outcomes: dict[str, Outcome], level: Level, verdict: str) -> None:
    assert report(**outcomes).level is level
    assert report(**outcomes).verdict.startswith(verdict)


def test_what_was_not_run_is_not_proven() -> None:
    whole = report()
    part = ConformanceReport(SUBJECT, "acme 1.0", CHECKS, [r for r in whole.results if "threads" not in r.check])
    assert part.level is Level.LOADS
    assert ConformanceReport(SUBJECT, "acme 1.0", CHECKS, []).verdict == "nothing proven"


def test_a_library_of_its_own_operators_claims_none_of_the_database() -> None:
    subject = Subject(Kind.KERNELS, "acme", Claims(models=("mine:model",)))
    checks = checks_of(subject)
    due = [check for check in checks if is_claimed(check, subject.claims)]
    told = ConformanceReport(subject, "acme 1.0", checks, [Result(c.id, c.level, Outcome.PASSED) for c in due])
    assert (told.level, told.verdict) == (Level.MODELS, "models")


def test_files(tmp_path: Path) -> None:
    markdown, content, badge = report(residual=Outcome.FAILED, branches=Outcome.DECLINED).write(tmp_path / "new")
    assert markdown.name == "backend-acme.md"
    text = markdown.read_text("utf-8")
    assert "# acme: 1 fault\n" in text
    assert "| `models/residual` | failed | because \\| of it |" in text
    assert "## Declined" in text

    told = json.loads(content.read_text("utf-8"))
    assert (told["plugin"], told["level"], told["verdict"]) == ("partitioners:acme", "operators", "1 fault")
    assert told["levels"]["models"]["failed"] == 1
    assert {"check", "outcome", "detail", "seconds", "expected_failure"} == set(told["results"][0])

    words = [element.text for element in ElementTree.parse(badge).iter() if element.tag.endswith("text")]
    assert words == ["delegraph", "1 fault"]


def test_a_proposal_is_read_again() -> None:
    results = [
        Result("operators/add/float32", Level.OPERATORS, Outcome.PASSED),
        Result("operators/add/int32", Level.OPERATORS, Outcome.UNCLAIMED),
        Result("operators/abs/float32", Level.OPERATORS, Outcome.DECLINED),
        Result("operators/nn.functional.relu/float32", Level.OPERATORS, Outcome.FAILED),
        Result("models/dynamic_batch", Level.MODELS, Outcome.PASSED),
        Result("models/dynamic_arithmetic", Level.MODELS, Outcome.PASSED),
        Result("models/branches", Level.MODELS, Outcome.UNCLAIMED),
        Result("models/running_total", Level.MODELS, Outcome.PASSED),  # right, but not claimed: left to kernels
    ]
    import tomllib

    claims = Claims.from_mapping(tomllib.loads(proposed(ConformanceReport(SUBJECT, "acme 1.0", CHECKS, results))))
    assert claims.operators == {"add": ("float32", "int32")}
    assert set(claims.features) == {"dynamic_shapes", "control_flow"}
    assert claims.models == ("mine:model",)


# ---- arrays --------------------------------------------------------------------------------------------


def test_arrays_of_every_dtype(tmp_path: Path) -> None:
    arrays = {
        "x.1": np.arange(6, dtype=np.int8).reshape(2, 3),
        "half": np.array([1.5, -2.0], ml_dtypes.bfloat16),
        "none": np.zeros((0, 4), bool),
    }
    save_arrays(tmp_path / "arrays.npz", arrays)
    read = load_arrays(tmp_path / "arrays.npz")
    assert {name: (a.dtype, a.shape, a.tobytes()) for name, a in read.items()} == {
        name: (a.dtype, a.shape, a.tobytes()) for name, a in arrays.items()
    }


@pytest.mark.parametrize(
    ("actual", "expected", "slack", "message"),
    [
        ([1.0, np.nan], [1.0, np.nan], 0.0, ""),
        ([1.0, np.inf], [1.0, np.inf], 0.0, ""),
        ([1.0, 2.1], [1.0, 2.0], 0.2, ""),
        ([1.0, 2.1], [1.0, 2.0], 0.0, "1 of 2 elements are wrong, the first at [1]: 2.0999999046325684, not 2.0"),
        ([np.nan, 2.0], [1.0, 2.0], 9.0, "1 of 2"),
        ([np.inf, 2.0], [-np.inf, 2.0], 9.0, "1 of 2"),
        ([1.0], [1.0, 2.0], 0.0, "it is float32[1], not float32[2]"),
    ],
)
def test_how_far_two_arrays_are_apart(actual: list[float], expected: list[float], slack: float, message: str) -> None:
    told = difference(np.array(actual, np.float32), np.array(expected, np.float32), slack)
    assert told.startswith(message) and bool(told) == bool(message)


def test_integers_are_exact() -> None:
    assert difference(np.array([1, 2]), np.array([1, 3]), 5.0)
    assert not difference(np.array([1, 2]), np.array([1, 3]), 0.0, {"int64": (0.0, 1.0)})
