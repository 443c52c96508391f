"""A program's file is overwritten, cut, or replaced while it is loaded: the old numbers, or an exception.

Each case runs in a process of its own: a page of a mapped file that is not there any more ends the process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
from core.tests.runtime.test_mapped_files import leases_work
from torch import nn

import delegraph
from delegraph.runtime.data_loader import COPIED_BYTES

pytestmark = pytest.mark.models

SCRIPT = """
import json, os, shutil, sys
from pathlib import Path
import numpy as np
import delegraph
from delegraph.errors import AccessFailed

models, folder, (options, lease) = *map(Path, sys.argv[1:3]), sys.argv[3:]
if lease == "no lease":
    import delegraph.runtime.mapped_file as mapped_file
    mapped_file.take_lease = lambda holder: mapped_file.Lease.REFUSED
inputs = np.ones((1, 8), np.float32), np.array([3])
path, other = folder / "m.pte", folder / "other.pte"

def cut(nbytes):
    os.truncate(path, nbytes)
    with open(path, "ab") as file:  # the time of the last change has moved on
        os.utime(file.fileno(), ns=(1, 1))

def overwrite():
    shutil.copyfile(other, path)
    os.utime(path, ns=(1, 1))

def result(model, expected):
    try:
        return "old" if all(map(np.array_equal, model(*inputs), expected)) else "another"
    except AccessFailed as error:
        return str(error)

def results(change):
    path.unlink(missing_ok=True)  # and not written into: what was loaded before has it
    for name in ("m.pte", "other.pte"):
        shutil.copyfile(models / name, folder / name)
    model, unused = (delegraph.load(path, **json.loads(options)) for _ in range(2))
    expected = model(*inputs)
    change()
    told = [result(program, expected) for program in (model, model, unused, unused)]
    for program in (model, unused):
        getattr(program, "close", int)()
    return told

print(json.dumps({name: results(change) for name, change in {
    "overwritten": overwrite,
    "halved": lambda: cut(os.path.getsize(path) // 2),
    "emptied": lambda: cut(0),
    "renamed over": lambda: os.replace(other, path),
    "removed": lambda: os.remove(path),
}.items()}))
"""

SAFE = ("renamed over", "removed")
CHANGES = ("overwritten", "halved", "emptied", *SAFE)
RUNS = {
    "kernels": ([], {}),
    "aten": ([], {"kernels": ["aten"]}),
    "cpu": (["cpu"], {}),
    "openvino": (["openvino"], {}),
    "npu": (["npu"], {}),
    "dsp": (["dsp"], {}),
    "isolated": (["cpu"], {"isolated": True}),
}
"""What is lowered for, and how it is loaded."""


class Looking(nn.Module):
    """A layer, which a delegate may take, and a table of 32 bytes a row, of which one is looked up."""

    def __init__(self, rows: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(8, outputs)
        self.table = nn.Embedding(rows, 8)

    def forward(self, x: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(x).relu(), self.table(row)


def saved(folder: Path, backends: list[str], nbytes: int) -> None:
    """Two models with other weights, of that many bytes: half of them a delegate's, unless its device is simulated."""
    inputs = torch.ones(1, 8), torch.tensor([3])
    is_simulated = bool({"npu", "dsp"} & set(backends))
    for seed, name in enumerate(FILES):
        torch.manual_seed(seed)
        model = Looking(nbytes // 8, 8) if is_simulated else Looking(nbytes // 64, nbytes // 64)
        program = delegraph.quantize(model.eval(), [inputs], backends=backends) if is_simulated else model.eval()
        delegraph.lower(program, inputs, backends=backends).save(folder / name)
        assert ((folder / name).stat().st_size > COPIED_BYTES) == (nbytes > COPIED_BYTES)


FILES = "m.pte", "other.pte"
SMALL, LARGE = 2**15, COPIED_BYTES + 2**16


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], Path]:
    """The folder with the two files, of which each case has a copy."""

    @cache
    def folder(run: str, nbytes: int) -> Path:
        made = tmp_path_factory.mktemp("models")
        saved(made, RUNS[run][0], nbytes)
        return made

    return folder


def results(models: Path, folder: Path, run: str, lease: str = "") -> dict[str, list[str]]:
    """For each change what four runs gave."""
    command = [sys.executable, "-c", SCRIPT, str(models), str(folder), json.dumps(RUNS[run][1]), lease]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    told: dict[str, list[str]] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("run", RUNS)
def test_a_small_file_is_a_copy(models: Callable[[str, int], Path], run: str, tmp_path: Path) -> None:
    assert results(models(run, SMALL), tmp_path, run) == dict.fromkeys(CHANGES, ["old"] * 4)


@pytest.mark.parametrize("run", RUNS)
def test_a_large_file_is_copied_before_it_changes(models: Callable[[str, int], Path], run: str, tmp_path: Path) -> None:
    if not leases_work(tmp_path):
        pytest.skip("neither this system nor this file system tells before a file is written to")
    assert results(models(run, LARGE), tmp_path, run) == dict.fromkeys(CHANGES, ["old"] * 4)


@pytest.mark.parametrize("run", [run for run in RUNS if run != "isolated"])
def test_a_large_file_is_looked_at(models: Callable[[str, int], Path], run: str, tmp_path: Path) -> None:
    """Where there is no lease."""
    for change, lines in results(models(run, LARGE), tmp_path, run, "no lease").items():
        if change in SAFE:
            assert lines == ["old"] * 4
        else:
            assert all("the file was changed while it was in use" in line for line in lines), (change, lines)
