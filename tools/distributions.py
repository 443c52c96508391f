"""The repository's pyproject.toml files -> an sdist and a wheel of each distribution, checked as an index would.

    python -m tools.distributions DIRECTORY

Built as for an index: the sdist from the sources alone, the wheel from the sdist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DISTRIBUTIONS", "ROOT", "Distribution", "build", "check", "distributions", "sources"]

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A pip-installable part of this repository: the folders of its pyproject.toml and of its package, its extras."""

    name: str
    folder: Path
    package: Path
    extras: tuple[str, ...]


def distributions(root: Path) -> list[Distribution]:
    """That of `root` first, as pip wants it, then those up to two folders below; those in tests are strangers'."""
    listed = []
    below = sorted([*root.glob("*/pyproject.toml"), *root.glob("*/*/pyproject.toml")])
    for file in [root / "pyproject.toml", *below]:
        if file.relative_to(root).parts[0] not in ("tests", "examples", "build"):
            settings = tomllib.loads(file.read_text("utf-8"))
            project, (package,) = settings["project"], settings["tool"]["hatch"]["build"]["only-include"]
            extras = tuple(project.get("optional-dependencies", ()))
            listed.append(Distribution(project["name"], file.parent, file.parent / package, extras))
    return listed


DISTRIBUTIONS = distributions(ROOT)
"""Those of this repository: a new one is found by its pyproject.toml."""


def build(distribution: Distribution, into: Path) -> tuple[Path, Path]:
    """Build `distribution` into the folder `into`; its sdist and its wheel."""
    with tempfile.TemporaryDirectory() as directory:
        copy = sources(distribution.folder, Path(directory) / "sources")
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into.absolute()), str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{distribution.name} cannot be built:\n{done.stdout}{done.stderr}")
    stem = distribution.package.name
    (sdist,), (wheel,) = into.glob(f"{stem}-[0-9]*.tar.gz"), into.glob(f"{stem}-[0-9]*.whl")
    return sdist, wheel


def sources(folder: Path, copy: Path) -> Path:
    """Copy what is below `folder` to `copy`, without hidden files and what tools left there; returns `copy`."""
    left = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.egg-info")
    return Path(shutil.copytree(folder, copy, ignore=left))


def check(files: list[Path]) -> None:
    """Have twine say whether an index would take these and show their descriptions. Raises `RuntimeError`."""
    path = os.pathsep.join(filter(None, [str(ROOT / "build" / "twine"), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, files)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"twine refuses them:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    made = [file for distribution in DISTRIBUTIONS for file in build(distribution, target)]
    check(made)
    print(*made, sep="\n")
