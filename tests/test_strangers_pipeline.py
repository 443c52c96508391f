"""A stranger's stage and dialect rule, pip-installed: listed and sound, there for who names them and for nobody else.

The distribution is `tests/plugins/acme_pipeline`; pip installs a copy of it, offline, into a directory of its own.
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

SOURCE = Path(__file__).parent / "plugins" / "acme_pipeline"

MODEL = """
import torch

def six_dims():
    return torch.nn.ReLU(), (torch.ones(1, 1, 1, 1, 2, 512),)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the distribution is installed, beside the model."""
    folder = tmp_path_factory.mktemp("acme_pipeline")
    copy = shutil.copytree(SOURCE, folder / "source")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "site"), str(copy)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    (folder / "site" / "six.py").write_text(MODEL)
    return folder / "site"


def delegraph(site: Path, *words: str, **environ: str) -> tuple[int, str]:
    """The exit code of the command, and what it prints, where the distribution is seen."""
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "delegraph", *words]
    env = {**os.environ, "PYTHONPATH": path, **environ}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=site, timeout=600, check=False)
    return done.returncode, done.stdout + done.stderr


def test_they_are_listed_checked_and_healthy(site: Path) -> None:
    rows = json.loads(delegraph(site, "plugins", "list", "--json")[1])
    told = {(row["group"], row["name"], row["api"]) for row in rows if row["distribution"] == "acme-pipeline"}
    assert told == {("delegraph.stages", "acme_budget", "1.1"), ("delegraph.dialect_rules", "acme_rank", "1.1")}
    rows = json.loads(delegraph(site, "plugins", "check", "acme-pipeline", "--json")[1])
    assert {row["plugin"]: row["result"] for row in rows} == {
        "stages:acme_budget": "ok",
        "dialect_rules:acme_rank": "ok",
    }
    assert "acme" not in delegraph(site, "plugins", "doctor")[1]


def test_nothing_of_them_runs_that_was_not_named(site: Path) -> None:
    assert delegraph(site, "lower", "six.py:six_dims", "-o", "m.pte")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--stages", "acme_budget{nbytes=1000}"), "method 'forward' takes 8192 bytes, and the board has 1000"),
        (("--stages", "acme_budget{bytes=1}"), "has no option 'bytes'; it has nbytes; did you mean 'nbytes'"),
        (("--dialect-rules", "acme_rank"), "a tensor of 6 dims; the board moves up to 4 [rule: dialect rule acme_rank"),
        (("--dialect-rules", "acme_rank"), "[rule: dialect rule acme_rank of acme-pipeline]"),
    ],
)
def test_who_names_one_is_held_to_it(words: tuple[str, ...], message: str, site: Path) -> None:
    status, told = delegraph(site, "lower", "six.py:six_dims", "-o", "m.pte", *words)
    assert (status, message in " ".join(told.split())) == (1, True), told


def test_who_names_both_and_fits_is_lowered(site: Path) -> None:
    words = ("--stages", "acme_budget", "--dialect-rules", "acme_rank{most=6}")
    assert delegraph(site, "lower", "six.py:six_dims", "-o", "m.pte", *words, DELEGRAPH_DUMP="acme_budget")[0] == 0
    assert "relu" in (site / "delegraph-dump" / "acme_budget.forward.after.txt").read_text()
