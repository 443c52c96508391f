"""The repository's pyproject.toml files -> an sdist and a wheel of each distribution.

    python -m tests.packaging.build DIRECTORY

Built as for an index: the sdist from the sources alone, the wheel from the sdist. A copy is built, for setuptools leaves
traces beside its sources and reads them again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["DISTRIBUTIONS", "ROOT", "Distribution", "build"]

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A pip-installable part of this repository: its name, the folder of its pyproject.toml, that of its package."""

    name: str
    folder: Path
    package: Path


def _distributions() -> list[Distribution]:
    """Those at the root and up to two folders below it; others' plug-ins in tests and examples are not ours."""
    found = []
    for file in sorted([ROOT / "pyproject.toml", *ROOT.glob("*/pyproject.toml"), *ROOT.glob("*/*/pyproject.toml")]):
        settings = tomllib.loads(file.read_text())
        name = settings["project"]["name"]
        if file.relative_to(ROOT).parts[0] not in ("tests", "examples"):
            where = settings["tool"]["setuptools"]["packages"]["find"].get("where", ["."])
            found.append(Distribution(name, file.parent, file.parent / where[0] / name.replace("-", "_")))
    return found


DISTRIBUTIONS = _distributions()


def build(distribution: Distribution, into: Path) -> tuple[Path, Path]:
    """Build `distribution` into the folder `into`; its sdist and its wheel."""
    with tempfile.TemporaryDirectory() as directory:
        copy = shutil.copytree(distribution.folder, Path(directory) / "sources", ignore=_not_sources)
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(into.absolute()), str(copy)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{distribution.name} cannot be built:\n{done.stdout}{done.stderr}")
    stem = distribution.package.name
    (sdist,), (wheel,) = into.glob(f"{stem}-[0-9]*.tar.gz"), into.glob(f"{stem}-[0-9]*.whl")
    return sdist, wheel


def _not_sources(folder: str, names: list[str]) -> list[str]:
    """What is not to be copied: hidden files, what tools left, other distributions."""
    return [
        name
        for name in names
        if name.startswith(".")
        or name in ("build", "dist", "__pycache__")
        or name.endswith(".egg-info")
        or (Path(folder) / name / "pyproject.toml").exists()
    ]


if __name__ == "__main__":
    target = Path(sys.argv[1])
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for one in DISTRIBUTIONS:
        print(*build(one, target), sep="\n")
