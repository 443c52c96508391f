"""`delegraph new` of every kind: what it writes installs, passes its own tests, lints and type checks."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from delegraph.cli import main
from delegraph.cli.new import KINDS

pytestmark = pytest.mark.conformance

TEN_MINUTES = 600.0
"""A processor's seconds from `new` to a passing kit, as the tutorial promises; other work does not count."""


@pytest.mark.parametrize("kind", KINDS)
def test_it_installs_and_passes(kind: str, tmp_path: Path) -> None:
    before = cpu_seconds()
    main(["new", kind, "my-plugin", "--into", str(tmp_path)])
    project, site = tmp_path / "my-plugin", tmp_path / "site"
    pip = ["-m", "pip", "install", "--no-deps", "--no-build-isolation", "--no-compile", "--target", str(site)]
    run(project, {}, *pip, str(project))
    found = {"PYTHONPATH": str(site)}
    written = ["my_plugin", "tests"]  # beside what pip builds
    told = run(project, found, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "tests")
    assert " passed" in told and " failed" not in told
    proven = run(project, found, "-m", "delegraph", "plugins", "check", "my_plugin", "--run", "--report", "report")
    assert "my_plugin of my-plugin 0.1.0: models" in proven or kind in ("partitioner", "quantizer")
    assert cpu_seconds() - before < TEN_MINUTES
    ruff = ("-m", "ruff", "check", "--isolated", "--line-length", "120")
    run(project, {}, *ruff, "--ignore", "I001", *written)  # here the imports of templates are sorted as the core's are
    run(project, {}, "-m", "ruff", "format", "--isolated", "--line-length", "120", "--check", *written)
    run(project, found, "-m", "mypy", "--strict", "--ignore-missing-imports", "my_plugin")


def cpu_seconds() -> float:
    """What the processes that this one has started, and that have ended, took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(folder: Path, environment: dict[str, str], *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "ignore", **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4000:]}{done.stderr[-2000:]}"
    return done.stdout
