"""Custom operators of a stranger's distribution, pip-installed: lowered with torch, run without it.

The distribution is `tests/plugins/acme_ops`; pip installs a copy of it, offline, into a directory of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.install

SOURCE = Path(__file__).parent / "plugins" / "acme_ops"

LOWER = """
import sys
import torch, delegraph
from acme_ops.operators import scaled, update_cache

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(4, 3))

    def forward(self, row, position):
        return scaled(self.cache.t() @ self.cache, 0.5), update_cache(self.cache[:], row, position)

delegraph.lower(Model(), (torch.zeros(3), torch.tensor(0))).save(sys.argv[1])
"""

RUN = """
import json, sys
sys.modules["torch"] = None
import numpy as np
import delegraph
run = delegraph.load(sys.argv[1])
cache = np.zeros((4, 3), np.float32)
for position in range(4):
    row = np.arange(3, dtype=np.float32) + position
    square, total = run(row, np.array(position))
    np.testing.assert_array_equal(square, 0.5 * (cache.T @ cache))
    cache[position] = row
    np.testing.assert_array_equal(total, cache[: position + 1].sum(0))
print(json.dumps(run["forward"].method.kernels))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the distribution is installed."""
    folder = tmp_path_factory.mktemp("acme_ops")
    copy = shutil.copytree(SOURCE, folder / "source")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "site"), str(copy)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return folder / "site"


def run(site: Path, *words: str | Path, cwd: Path | None = None) -> str:
    """What a Python that sees the distribution prints."""
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, *map(str, words)]
    environ = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=cwd, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_program_of_its_operators_runs_without_torch(site: Path, tmp_path: Path) -> None:
    script = tmp_path / "lower_model.py"
    script.write_text(LOWER)
    run(site, script, tmp_path / "m.pte")
    kernels = json.loads(run(site, "-c", RUN, tmp_path / "m.pte"))
    assert kernels["acme_ops::scaled.out"] == kernels["acme_ops::update_cache.out"] == "acme_ops"
    told = json.loads(run(site, "-m", "delegraph", "inspect", tmp_path / "m.pte", "--json"))
    assert "acme_ops::scaled.out" in json.dumps(told)


def test_the_library_is_sound(site: Path) -> None:
    rows = json.loads(run(site, "-m", "delegraph", "plugins", "check", "acme-ops", "--json"))
    assert [row["result"] for row in rows] == ["ok"]


def test_its_registration_is_what_its_yaml_gives(site: Path) -> None:
    words = ["kernels.yaml", "-o", "acme_ops/_registration.py", "--import", "acme_ops.operators", "--check"]
    told = run(site, "-m", "delegraph", "codegen", *words, cwd=SOURCE)
    assert told == "acme_ops/_registration.py is up to date\n"
