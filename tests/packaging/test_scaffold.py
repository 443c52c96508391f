"""`delegraph new` of every kind, where the wheels in `dist/` are installed: what it writes installs there, passes its
own tests (`make test-scaffold`), is proven whole, lints and type checks (`make conformance`).
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import pytest
from tests.environment import Environment, run
from tools.distributions import DISTRIBUTIONS, ROOT
from tools.environments import ON_RAY

from delegraph.cli.new import KINDS

TEN_MINUTES = 600.0
"""A processor's seconds from `new` to a passing kit, as the tutorial promises; other work does not count."""

each = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Our distributions from their wheels, and of what others wrote (torch, pytest) what is installed here.

    A line in a `.pth` makes a folder importable and no more: the editable installs in it are not followed.
    """
    made = Environment(tmp_path_factory.mktemp("scaffold") / "environment")
    made.install("--no-deps", *(built(distribution.package.name) for distribution in DISTRIBUTIONS))
    made.run("-m", "pip", "uninstall", "--yes", "setuptools")  # venv's own, of an age that knows no SPDX licences
    there = made.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(there, "what_others_wrote.pth").write_text(f"{sysconfig.get_path('purelib')}\n", "utf-8")
    return made


def built(package: str) -> Path:
    """The wheel of a package of ours."""
    found = list((ROOT / "dist").glob(f"{package}-[0-9]*.whl"))
    assert len(found) == 1, f"dist/ has {len(found)} wheels of {package}: run `make wheels`"
    return found[0]


@pytest.mark.scaffold
def test_nothing_of_the_checkout_is_seen(environment: Environment) -> None:
    here = [distribution for distribution in DISTRIBUTIONS if distribution.name != ON_RAY]  # Ray is not there
    packages = ", ".join(distribution.package.name for distribution in here)
    places = environment.run("-c", f"import {packages}\nfor one in ({packages}): print(one.__file__)").split()
    assert all(Path(place).is_relative_to(environment.folder) for place in places)
    assert len(places) == len(here)


@pytest.mark.scaffold
@each
def test_it_installs_and_passes(kind: str, environment: Environment, tmp_path: Path) -> None:
    """All that its tests need is there, and is what it says that they need: pip finds nothing to fetch."""
    project = new(kind, f"my-{kind}", environment, tmp_path)
    told = environment.run("-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", cwd=project)
    assert " passed" in told and " failed" not in told
    environment.run("-m", "delegraph", "plugins", "check", f"my_{kind}")


@pytest.mark.conformance
@each
def test_it_is_proven_whole(kind: str, environment: Environment, tmp_path: Path) -> None:
    before = cpu_seconds()
    project = new(kind, f"our-{kind}", environment, tmp_path)
    name = f"our_{kind}"
    proven = environment.run("-m", "delegraph", "plugins", "check", name, "--run", "--report", "report", cwd=project)
    assert f"{name} of our-{kind} 0.1.0: models" in proven
    assert cpu_seconds() - before < TEN_MINUTES
    written = [name, "tests"]  # beside what pip builds
    ruff = (sys.executable, "-m", "ruff")
    settings = ("--isolated", "--line-length", "120")
    # here the imports of templates are sorted as the core's are
    run([*ruff, "check", *settings, "--ignore", "I001", *written], project)
    run([*ruff, "format", *settings, "--check", *written], project)
    environment.run("-m", "mypy", "--strict", "--ignore-missing-imports", name, cwd=project)


def new(kind: str, name: str, environment: Environment, folder: Path) -> Path:
    """What `delegraph new` writes there, installed with what its tests need."""
    environment.run("-m", "delegraph", "new", kind, name, "--into", folder)
    environment.install("--no-index", "--no-build-isolation", f"{folder / name}[test]")
    return folder / name


def cpu_seconds() -> float:
    """What the processes that this one has started, and that have ended, took."""
    import resource  # Windows has none

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
