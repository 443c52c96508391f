"""A stranger's backend for a device of two revisions, pip-installed: one file runs on both, and without either.

The distribution is `tests/plugins/acme_boards`; pip installs a copy of it, offline, into a directory of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.install

SOURCE = Path(__file__).parent / "plugins" / "acme_boards"

MODEL = """
import torch

class Net(torch.nn.Module):
    def forward(self, x, y):
        return torch.relu(x + y).exp()

def make():
    return Net(), (torch.randn(2, 3), torch.randn(3))
"""

X, Y = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.float32([0.5, -0.5, 1])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the distribution is installed, beside the model and the program."""
    folder = tmp_path_factory.mktemp("acme_boards")
    copy = shutil.copytree(SOURCE, folder / "source")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "site"), str(copy)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    (folder / "site" / "net.py").write_text(MODEL)
    np.savez(folder / "site" / "inputs.npz", x=X, y=Y)
    backends = "boards{revisions='r2 r1'}"
    words = ["lower", "net.py:make", "--backends", backends, "--fallback", "kernels", "-o", "m.pte"]
    code, told = delegraph(folder / "site", *words)
    assert code == 0, told
    return folder / "site"


def delegraph(site: Path, *words: str, **environ: str) -> tuple[int, str]:
    """The exit code of the command, and what it prints, where the distribution is seen, and none but it and kernels."""
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    env = {**os.environ, "PYTHONPATH": path, "DELEGRAPH_PLUGINS": "acme-boards,delegraph-portable", **environ}
    command = [sys.executable, "-m", "delegraph", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=site, timeout=600, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("board", ["r2", "r1", "r0", "none"])
def test_it_runs_on_each_board(site: Path, board: str) -> None:
    words = ["run", "m.pte", "--inputs", "inputs.npz", "--output", "outputs.npz"]
    code, told = delegraph(site, *words, ACME_BOARD=board)
    assert code == 0, told
    falls_back = board in ("r0", "none")
    assert ("run their fall-backs here" in told) == falls_back
    assert not falls_back or {"r0": "the board is r0", "none": "no board is plugged in"}[board] in told
    with np.load(site / "outputs.npz") as outputs:
        (result,) = outputs.values()
    np.testing.assert_allclose(result, np.exp(np.maximum(X + Y, 0)), rtol=1e-6)


def test_doctor_says_what_would_run(site: Path) -> None:
    assert "AcmeBoard" not in delegraph(site, "plugins", "doctor", "m.pte")[1]
    told = delegraph(site, "plugins", "doctor", "m.pte", ACME_BOARD="r1")[1]
    assert "note: variant" in told and "its blob 'r1', would run here" in told and "for r2, and the board is r1" in told
    told = delegraph(site, "plugins", "doctor", "m.pte", ACME_BOARD="none")[1]
    assert "warning: fall-back\n  delegate 0 of 'forward', delegate 1 of 'forward': its fall-back, on kernels" in told
    assert "error: AcmeBoard" not in told


def test_inspect_lists_the_blobs(site: Path) -> None:
    (method,) = json.loads(delegraph(site, "inspect", "m.pte", "--json")[1])["methods"]
    for delegate in method["delegates"]:
        assert delegate["stamp"]["variant"] == "r2"
        assert [other["variant"] for other in delegate["alternatives"]] == ["r1", ""]
        assert [other["fallback"] for other in delegate["alternatives"]] == [None, []]
