"""`delegraph.debug`, its command and the kit's `--repro` on backends that are wrong, die, hang and refuse.

Each fault is cut to its calls, and the script shows it until the backend is mended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import delegraph
from delegraph_testkit.checks import checks_of
from delegraph_testkit.outcomes import Outcome
from delegraph_testkit.session import Session
from delegraph_testkit.subject import Kind, Subject

pytestmark = [pytest.mark.models, pytest.mark.long]

Install = Callable[..., Any]
MULTIPLIES = '"*": np.multiply'
DIES = '"*": lambda a, b: __import__("os").kill(__import__("os").getpid(), 11)'
HANGS = '"*": lambda a, b: __import__("time").sleep(600)'


class Chain(nn.Module):
    """Calls, one of them a product."""

    def __init__(self, before: int, behind: int) -> None:
        super().__init__()
        self.before, self.behind = before, behind

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for _ in range(self.before):
            x = x + y
        x = x * y
        for _ in range(self.behind):
            x = x - y
        return x


LONG, SHORT = Chain(12, 7), Chain(1, 1)
"""Where the process dies, a trial takes as long as it takes to start another one."""


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(3, 4), torch.randn(3, 4)


def run(*words: str) -> tuple[int, str, str]:
    """How Python ends with what is installed now, what it printed, and its errors."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, encoding="utf-8", timeout=600, check=False
    )
    return done.returncode, done.stdout, done.stderr


def shows(folder: str) -> tuple[int, str]:
    """How the script of a folder ends, and its errors."""
    code, _, errors = run(str(Path(folder, "repro.py")))
    return code, errors


def only_fault(folder: Path, model: Chain = LONG) -> delegraph.Fault:
    debugged = delegraph.debug(model, inputs(), backends=["calc"], folder=folder)
    (fault,) = debugged.faults
    assert [call.operator for call in fault.calls] == ["aten::mul.Tensor"]
    assert "in forward: x = x * y" in fault.calls[0].location
    assert fault.total == 1 + model.before + model.behind
    assert Path(fault.folder) == folder / "repro-calc-mul"
    assert {path.name for path in Path(fault.folder).iterdir()} == {
        "README.md",
        "expected.npz",
        "inputs.npz",
        "program.pt2",
        "repro.py",
    }
    assert [path.name for path in folder.iterdir()] == ["repro-calc-mul"]
    return fault


def mend(tmp_path: Path, old: str, new: str, part: str = "runtime") -> None:
    source = tmp_path / f"calc_{part}.py"
    text = source.read_text()
    assert old in text
    source.write_text(text.replace(old, new))


def test_wrong_numbers(install: Install, tmp_path: Path) -> None:
    wrong = '"*": lambda a, b: a * b * np.float32(1.01)'
    install(runtime=(MULTIPLIES, wrong))
    fault = only_fault(tmp_path / "out")
    assert fault.verdict.kind.value == "wrong numbers"
    assert "Mismatched elements: " in fault.verdict.said
    script = Path(fault.folder, "repro.py").read_text("utf-8")
    assert "class Part(torch.nn.Module):" in script and "torch.ops.aten.mul.Tensor(" in script
    assert "code: x = x * y" in script
    assert "calc 1.0" in Path(fault.folder, "README.md").read_text("utf-8")
    code, words = shows(fault.folder)
    assert (code, "Mismatched elements: " in words) == (1, True)
    mend(tmp_path, wrong, MULTIPLIES)
    assert shows(fault.folder)[0] == 0


def test_a_crash(install: Install, tmp_path: Path) -> None:
    install(runtime=(MULTIPLIES, DIES))
    fault = only_fault(tmp_path / "out", SHORT)
    assert fault.verdict.kind.value == "a crash"
    assert "its process ended with code -11 (SIGSEGV)" in fault.verdict.said
    assert "the process ended with code -11" in shows(fault.folder)[1]
    mend(tmp_path, DIES, MULTIPLIES)
    assert shows(fault.folder)[0] == 0


def test_a_refusal(install: Install, tmp_path: Path) -> None:
    takes = "if node.target not in SYMBOLS:\n                    raise"
    install(aot=(takes, takes.replace("not in SYMBOLS", "== aten.mul.Tensor")))
    fault = only_fault(tmp_path / "out")
    assert fault.verdict.kind.value == "a refusal"
    assert "calc has no aten.mul.Tensor" in fault.verdict.said
    assert "refused: " in shows(fault.folder)[1]


def test_a_hang(install: Install) -> None:
    """Of two calls, for each trial of them waits."""

    class Two(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x * y + y

    install(runtime=(MULTIPLIES, HANGS))
    (fault,) = delegraph.debug(Two(), inputs(), backends=["calc"], timeout=10).faults
    assert fault.verdict.kind.value == "no answer"
    assert fault.verdict.said == "it did not answer within 10 s"
    assert [call.operator for call in fault.calls] == ["aten::mul.Tensor"]


def test_a_pair(install: Install, tmp_path: Path) -> None:
    """Wrong where relu comes behind a product, as in a fusion: neither call by itself is."""
    loop = '            elif node.op == "call_function":\n'
    install(
        aot=(
            loop,
            f"{loop}                if node.target == aten.relu.default and node.args[0].target == aten.mul.Tensor:\n"
            "                    names.reverse()\n",
        )
    )

    class Fused(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return ((x - y) * (y - x - x)).relu() + (x + y + y)

    debugged = delegraph.debug(Fused(), inputs(), backends=["calc"], folder=tmp_path / "out")
    (fault,) = debugged.faults
    assert [call.operator for call in fault.calls][-2:] == ["aten::mul.Tensor", "aten::relu"]
    assert len(fault.calls) < fault.total


def test_a_partitioner_that_dies(install: Install) -> None:
    """It cannot be asked what it takes, so the whole is cut; and who calls `debug` lives on."""
    support = "    if node.target not in SYMBOLS:\n        return"
    install(aot=(support, f"    if node.target == aten.mul.Tensor:\n        __import__('os')._exit(7)\n{support}"))
    (fault,) = delegraph.debug(SHORT, inputs(), backends=["calc"]).faults
    assert fault.verdict.kind.value == "a crash"
    assert [call.operator for call in fault.calls] == ["aten::mul.Tensor"]
    assert fault.note == "The backends could not be asked what they take: its process ended with code 7"


def test_the_command(install: Install, tmp_path: Path) -> None:
    install(runtime=(MULTIPLIES, '"*": np.add'))
    (tmp_path / "model.py").write_text(
        "import torch\n\nclass Product(torch.nn.Module):\n    def forward(self, x, y):\n        return (x * y).relu()\n"
        "\n\ndef make():\n    return Product(), (torch.ones(3), torch.ones(3))\n"
    )
    (tmp_path / "out" / "repro-calc-mul").mkdir(parents=True)
    place = str(tmp_path / "out" / "repro-calc-mul-2")  # the folder that is there is not touched
    words = ["-m", "delegraph", "debug", f"{tmp_path / 'model.py'}:make", "--backends", "calc"]
    code, told, steps = run(*words, "--out", str(tmp_path / "out"), "--json")
    assert code == 1
    assert "forward: writing a script for calc: wrong numbers" in steps
    (fault,) = json.loads(told)["faults"]
    assert (fault["kind"], fault["total_calls"], fault["backends"]) == ("wrong", 2, "calc")
    assert [call["operator"] for call in fault["calls"]] == ["aten::mul.Tensor"]
    assert fault["folder"] == place


def test_the_kit_cuts_what_a_check_finds(install: Install, tmp_path: Path) -> None:
    install(runtime=(MULTIPLIES, '"*": np.add'))
    subject = Subject(Kind.BACKEND, "calc")
    (check,) = [check for check in checks_of(subject) if check.id == "models/dynamic_arithmetic"]
    with Session(subject, repros=tmp_path / "out") as session:
        result = session.result(check)
    assert result.outcome is Outcome.FAILED
    assert "elements are wrong" in result.detail
    script = tmp_path / "out" / "repro-calc-mul" / "repro.py"
    assert f"the smallest part that shows it: wrong numbers of aten::mul.Tensor: {script}" in result.detail
    assert script.exists()
