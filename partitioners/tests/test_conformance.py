"""The strategies, offered as plug-ins for the CPU backend and proven by the conformance kit (`make conformance`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.conformance

SOURCES = Path(__file__).parents[2] / "tests" / "plugins" / "acme_strategies"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the distribution that offers them is installed."""
    folder = tmp_path_factory.mktemp("strategies")
    copy = shutil.copytree(SOURCES, folder / "sources")  # setuptools leaves its traces beside what it builds
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    run(folder, "-m", "pip", "install", *options, "--target", str(folder / "site"), str(copy))
    return folder / "site"


@pytest.mark.parametrize("name", ["acme_operators", "acme_patterns", "acme_capability"])
def test_a_strategy_is_proven(name: str, site: Path, request: pytest.FixtureRequest) -> None:
    folder: Path = request.config.getoption("--conformance-report") or site.parent
    told = run(site, "-m", "delegraph", "plugins", "check", name, "--run", "--report", str(folder.absolute()))
    assert f"partitioner {name} of acme-strategies 0.1.0: models" in told


def run(site: Path, *words: str) -> str:
    """What Python prints that sees what is installed in `site`."""
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, encoding="utf-8", timeout=900, check=False
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
    return done.stdout
