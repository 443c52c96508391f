"""Every operator that ExecuTorch 1.4.1 registers: the same programs on its kernels and ours, both against torch."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.operators.cases import all_cases
from tests.operators.differences import DIFFERENCES, NOT_LOWERED_TO, as_document
from tests.operators.programs import Emitted, difference, eager, emit, run_here

from delegraph.program.prim_op_names import DEVICE_COPIES

pytestmark = pytest.mark.executorch

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "executorch-differences.md"
CASES = all_cases()


@dataclass(frozen=True)
class Programs:
    """What became of the cases: programs by name, errors of those that could not be lowered, ExecuTorch's results."""

    emitted: dict[str, Emitted]
    failed: dict[str, str]
    theirs: dict[str, tuple[str, Any]]
    registered: frozenset[str]


@pytest.fixture(scope="session")
def programs(executorch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Lower every case and run them all in ExecuTorch's environment, in one go."""
    directory = tmp_path_factory.mktemp("operators")
    emitted: dict[str, Emitted] = {}
    failed: dict[str, str] = {}
    for name, case in CASES.items():
        try:
            emitted[name] = emit(case)
        except Exception as error:  # one case that cannot be lowered is that case's failure alone
            failed[name] = f"{type(error).__name__}: {error}"
    files = {name: f"{i:04}.pte" for i, name in enumerate(emitted)}
    for name, file in files.items():
        (directory / file).write_bytes(emitted[name].data)
    torch.save({name: (file, CASES[name].calls) for name, file in files.items()}, directory / "cases.pt")
    command = [executorch_python, str(HERE / "run_programs.py"), str(directory)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    registered = frozenset((directory / "operators.txt").read_text().split())
    return Programs(emitted, failed, torch.load(directory / "results.pt"), registered)


@pytest.mark.parametrize("name", CASES)
def test_same_results(name: str, programs: Programs) -> None:
    assert name in programs.emitted, programs.failed[name]
    case = CASES[name]
    wanted, ours = eager(case), run_here(programs.emitted[name].data, case)
    assert difference(ours, wanted) is None, "here against torch"
    kind, value = programs.theirs[name]
    if kind == "ran":
        found = difference(value, wanted) or difference(value, ours)
        kind = "differs" if found else "agrees"
    else:
        found = value
    listed = DIFFERENCES.get(name)
    expected = listed.kind if listed else "agrees"
    assert kind == expected, f"ExecuTorch {kind}, but the list of differences says that it {expected}: {found}"


def test_every_registered_operator_has_a_case(programs: Programs) -> None:
    reached = frozenset[str]().union(*(emitted.operators for emitted in programs.emitted.values()))
    assert len(programs.registered) == 259  # 240, and 19 of its quantized library
    on_the_cpu = programs.registered - DEVICE_COPIES  # copies to a device need one
    assert sorted(on_the_cpu - reached) == []
    assert sorted(on_the_cpu - {case.operator for case in CASES.values()}) == []


def test_each_case_calls_its_operator(programs: Programs) -> None:
    missed = [name for name, emitted in programs.emitted.items() if CASES[name].operator not in emitted.operators]
    assert missed == []


def test_the_list_names_cases_only() -> None:
    assert sorted(set(DIFFERENCES) - set(CASES)) == []


def test_operators_that_no_torch_program_is_lowered_to_are_listed() -> None:
    made = {case.operator for case in CASES.values() if case.renamed or case.edit}
    assert sorted(made) == sorted(NOT_LOWERED_TO)


def test_the_document_is_the_list(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--renew"):
        DOCUMENT.write_text(as_document(len(CASES)))
    assert DOCUMENT.read_text() == as_document(len(CASES)), "run with --renew"
