"""`inspect` and `run` on files that ExecuTorch 1.4.1 wrote."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.executorch

Told = Callable[..., Any]

WRITE = """
import sys, torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower

class Add(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(4.0))
    def forward(self, x):
        return x + self.weight

for name, partitioners in ("kernels", []), ("xnnpack", [XnnpackPartitioner()]):
    exported = torch.export.export(Add(), (torch.ones(3, 4),))
    program = to_edge_transform_and_lower(exported, partitioner=partitioners).to_executorch()
    with open(f"{sys.argv[1]}/{name}.pte", "wb") as file:
        program.write_to_file(file)
"""


@pytest.fixture(scope="module")
def theirs(executorch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `kernels.pte` and `xnnpack.pte`."""
    folder = tmp_path_factory.mktemp("theirs")
    done = subprocess.run([executorch_python, "-c", WRITE, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def test_inspect(theirs: Path, told: Told) -> None:
    summary = told("inspect", str(theirs / "kernels.pte"), "--json")
    (method,) = summary["methods"]
    assert [value["shape"] for value in (*method["inputs"], *method["outputs"])] == [[3, 4], [3, 4]]
    assert [operator["name"] for operator in method["operators"]] == ["aten::add.out"]
    assert summary["constant_nbytes"] == 16


def test_run(theirs: Path, told: Told) -> None:
    answer = told("run", str(theirs / "kernels.pte"), "--inputs", "zeros", "--json")
    assert answer["outputs"] == [{"dtype": "float32", "shape": [3, 4], "first": [0, 1, 2, 3, 0, 1, 2, 3]}]


def test_a_delegate_of_theirs(theirs: Path, told: Told) -> None:
    (method,) = told("inspect", str(theirs / "xnnpack.pte"), "--json")["methods"]
    (delegate,) = method["delegates"]
    assert (delegate["backend"], delegate["stamp"], delegate["installed"]) == ("XnnpackBackend", None, False)
    assert delegate["blob_nbytes"] > 0
    assert "not said" in told("inspect", str(theirs / "xnnpack.pte"))
