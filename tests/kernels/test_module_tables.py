"""The tables by which libraries import the modules of the operators that a program calls."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from tests.kernels.module_tables import renewed

import delegraph


@pytest.mark.parametrize("package", ["delegraph_portable", "delegraph_special"])
def test_the_table_names_every_operator_and_its_module(package: str, request: pytest.FixtureRequest) -> None:
    file, text = Path(import_module(f"{package}.operators").__file__ or ""), renewed(package)
    if request.config.getoption("--renew"):
        file.write_text(text, "utf-8")
    assert file.read_text("utf-8") == text, "an operator is new, gone or elsewhere: run with --renew"


def test_a_program_imports_the_modules_of_its_operators_alone(tmp_path: Path) -> None:
    import torch

    file = tmp_path / "relu.pte"
    delegraph.lower(torch.nn.ReLU(), (torch.randn(3),)).save(file)
    program = (
        "import sys, numpy, delegraph; delegraph.load(sys.argv[1])(numpy.ones(3, numpy.float32))\n"
        "print(*(name for name in sys.modules if name.startswith('delegraph_portable.')))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True)
    rooms = {name.split(".")[1] for name in done.stdout.split()}
    assert rooms == {"library", "operators", "pointwise"}
