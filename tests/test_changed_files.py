"""A program's file is overwritten, cut, or replaced while it is loaded: the old numbers, or an exception.

Each case runs in a process of its own: a page of a mapped file that is not there any more ends the process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import delegraph
from delegraph.runtime.data_loader import COPIED_BYTES

pytestmark = pytest.mark.models

SCRIPT = """
import os, shutil, sys
import numpy as np
import delegraph
from delegraph.errors import AccessFailed

path, other, change, backend = sys.argv[1:]
x = np.ones((1, 8), np.float32)
model, unused = delegraph.load(path), delegraph.load(path)
expected = model(x)

def cut(nbytes):
    os.truncate(path, nbytes)
    with open(path, "ab") as file:  # the time of the last change has moved on
        os.utime(file.fileno(), ns=(1, 1))

def overwrite():
    shutil.copyfile(other, path)
    os.utime(path, ns=(1, 1))

{
    "overwritten": overwrite,
    "halved": lambda: cut(os.path.getsize(path) // 2),
    "emptied": lambda: cut(0),
    "renamed over": lambda: os.replace(other, path),
    "removed": lambda: os.remove(path),
}[change]()
for program in (model, unused):
    for _ in range(2):
        try:
            print("old" if np.array_equal(program(x), expected) else "another")
        except AccessFailed as error:
            print(error)
"""

SAFE = ("renamed over", "removed")
CHANGES = ("overwritten", "halved", "emptied", *SAFE)


def saved(folder: Path, backends: list[str], rows: int) -> tuple[Path, Path]:
    """Two models of one shape with other weights, 32 bytes for each of `rows`."""
    paths = folder / "m.pte", folder / "other.pte"
    for seed, path in enumerate(paths):
        torch.manual_seed(seed)
        delegraph.lower(torch.nn.Linear(8, rows).eval(), (torch.ones(1, 8),), backends=backends).save(path)
    return paths


def lines_of(folder: Path, backends: list[str], rows: int, change: str) -> list[str]:
    path, other = saved(folder, backends, rows)
    command = [sys.executable, "-c", SCRIPT, str(path), str(other), change, *(backends or ["kernels"])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout.splitlines()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("backend", ["kernels", "cpu", "openvino"])
def test_a_small_file_is_a_copy(backend: str, change: str, tmp_path: Path) -> None:
    backends = [] if backend == "kernels" else [backend]
    assert lines_of(tmp_path, backends, 1000, change) == ["old"] * 4


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("backend", ["kernels", "cpu", "openvino"])
def test_a_large_file_is_looked_at(backend: str, change: str, tmp_path: Path) -> None:
    backends = [] if backend == "kernels" else [backend]
    lines = lines_of(tmp_path, backends, COPIED_BYTES // 32 + 1, change)
    assert len(lines) == 4
    if change in SAFE:
        assert lines == ["old"] * 4
    else:
        assert all("the file was changed while it was in use" in line for line in lines)
