"""`delegraph run` and `inspect` of a bundled program: its cases, its exit code, and what it has no use for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegraph.cli import main
from delegraph.devtools import BundledProgram, MethodTestCase, MethodTestSuite, write_bundled_program
from delegraph.program import serialize_program

from .conftest import program

Told = Callable[..., Any]
Refused = Callable[..., str]

X = np.arange(32, dtype=np.float32).reshape(4, 8)


@pytest.fixture
def bpte(tmp_path: Path) -> str:
    """x + y of the method `dynamic`: as expected, not as expected (by up to 4), and with nothing expected."""
    cases = [
        MethodTestCase((X, X), (2 * X,)),
        MethodTestCase((X, X), (2 * X + (X > 29) * np.float32(4),)),
        MethodTestCase((X, X)),
    ]
    suites = [MethodTestSuite("dynamic", cases), MethodTestSuite("forward", [])]
    bundled = BundledProgram(serialize_program(program()), suites)
    write_bundled_program(bundled, tmp_path / "m.bpte")
    return str(tmp_path / "m.bpte")


def test_cases_are_verified(bpte: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", bpte]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    assert "output 0: 2 of 32 elements differ, by up to 4 (relative 0.0625)" in out
    assert out.splitlines()[-1] == "1 differs, 1 ok, 1 ran"


def test_tolerances_decide(bpte: str, told: Told) -> None:
    assert told("run", bpte, "--atol", "4").splitlines()[-1] == "2 ok, 1 ran"
    assert told("run", bpte, "--rtol", "0.07").splitlines()[-1] == "2 ok, 1 ran"


def test_json(bpte: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", bpte, "--json"]) == 1
    results = json.loads(capsys.readouterr().out)
    assert [(result["method"], result["case"], result["verdict"], result["largest_error"]) for result in results] == [
        ("dynamic", 0, "ok", 0.0),
        ("dynamic", 1, "differs", 4.0),
        ("dynamic", 2, "ran", None),
    ]
    assert all(result["seconds"] > 0 for result in results)


def test_one_method(bpte: str, told: Told, refused: Refused) -> None:
    assert told("run", bpte, "--method", "forward") == "no test cases\n"
    message = refused("run", bpte, "--method", "identities", code=1)
    assert message.endswith("no test cases for a method 'identities'; there are some for dynamic, forward\n")


def test_options_of_backends_are_those_of_the_program(bpte: str, refused: Refused) -> None:
    message = refused("run", bpte, "--backend-options", "Npu{a=1}", code=1)
    assert "the program has no backend 'Npu'" in message


def test_what_it_is(bpte: str, told: Told) -> None:
    lines = told("inspect", bpte).splitlines()
    assert lines[0] == f"{bpte}, a bundled program: dynamic, forward, identities"
    assert any("float32[4, 8], float32[4, 8]" in line and "nothing" in line for line in lines)
    summary = told("inspect", bpte, "--json")
    assert [method["name"] for method in summary["methods"]] == ["dynamic", "forward", "identities"]
    case = {"inputs": ["float32[4, 8]", "float32[4, 8]"], "expected_outputs": ["float32[4, 8]"]}
    assert summary["test_suites"] == [
        {"method": "dynamic", "cases": [case, case, {**case, "expected_outputs": []}]},
        {"method": "forward", "cases": []},
    ]
    assert told("inspect", bpte, "--text").startswith("program version 0\n")


@pytest.mark.parametrize(
    "words", [("--inputs", "zeros"), ("--seed", "1"), ("--shape", "4,8"), ("--output-dir", "out"), ("--trace",)]
)
def test_options_that_a_bundled_program_has_no_use_for(bpte: str, refused: Refused, words: tuple[str, ...]) -> None:
    assert f"{words[0]} has no use with {bpte}: it brings its inputs" in refused("run", bpte, *words, code=2)


def test_a_bundled_program_tells_of_its_cases_on_standard_output_alone(bpte: str, refused: Refused) -> None:
    message = refused("run", bpte, "--json-file", "t.json", code=2)
    assert f"--json-file has no use with {bpte}: --json prints how its cases went" in message


def test_options_that_a_program_has_no_use_for(pte: str, refused: Refused) -> None:
    message = refused("run", pte, "--atol", "1", code=2)
    assert "--atol has no use" in message and "they are for the expected outputs of a .bpte" in message


def test_other_commands_say_what_it_is(bpte: str, refused: Refused, tmp_path: Path) -> None:
    message = refused("select", bpte, "-o", str(tmp_path / "out.pyz"), code=1)
    assert "it is a bundled program (.bpte)" in message


def test_repeats_are_timed_on_the_first_case(bpte: str, told: Told, refused: Refused) -> None:
    results = told("run", bpte, "--atol", "4", "--repeat", "3", "--warmup", "2", "--json")
    timed = [result["latency_seconds"]["repeat"] for result in results if "latency_seconds" in result]
    assert timed == [3] * len({result["method"] for result in results})
    assert all(result["case"] == 0 for result in results if "latency_seconds" in result)
    assert " in the median of 3" in told("run", bpte, "--atol", "4", "--repeat", "3")
    assert "--warmup has no use without --repeat" in refused("run", bpte, "--warmup", "2", code=2)
