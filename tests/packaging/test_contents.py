"""What is published of each distribution: its own package, whole and alone, and what an index tells of it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from tools.distributions import DISTRIBUTIONS, ROOT, Distribution, build, sources

each = pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda distribution: distribution.name)

BROUGHT = {"delegraph[aot]": {"torch", "sympy", "typing-extensions"}, "torch": {"sympy"}}
"""Packages that are imported and come with a requirement: a version of one's own could only contradict theirs."""


@pytest.mark.install
@each
def test_sdist_and_wheel_hold_the_package_and_nothing_else(distribution: Distribution, tmp_path: Path) -> None:
    sdist, wheel = build(distribution, tmp_path)
    package = distribution.package
    sources = {path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert package / "py.typed" in sources
    hook = {"hatch_build.py"} if (distribution.folder / "hatch_build.py").exists() else set()

    with zipfile.ZipFile(wheel) as archive:
        (info,) = {name.partition("/")[0] for name in archive.namelist() if ".dist-info/" in name}
        packed = {name for name in archive.namelist() if not name.startswith(f"{info}/")}
        made = {name for name in packed if hook and name.endswith(".pyi")}  # by the hook: its own tests say which
        assert packed - made == {path.relative_to(package.parent).as_posix() for path in sources}
        assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        check_metadata(message_from_string(archive.read(f"{info}/METADATA").decode()), distribution)

    with tarfile.open(sdist) as archive:
        packed = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    around = hook | {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml"}
    assert packed == around | {path.relative_to(distribution.folder).as_posix() for path in sources}


@pytest.mark.install
@each
def test_pip_leaves_nothing_beside_the_sources(distribution: Distribution, tmp_path: Path) -> None:
    """A later build would pack what is left there, and a later import read its metadata."""
    copy = sources(distribution.folder, tmp_path / "sources")
    before = set(copy.rglob("*"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(tmp_path / "site"), str(copy)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    assert (tmp_path / "site" / distribution.package.name / "py.typed").exists()
    assert set(copy.rglob("*")) == before


MODEL_EXPLORER = "model_explorer"
"""It imports its adapter, `delegraph.devtools.program_view.main`, which nobody else does."""


def check_metadata(metadata: Message, distribution: Distribution) -> None:
    """What an index shows, and that every package that a module imports is required."""
    assert metadata["Name"] == distribution.name
    assert metadata["Summary"]
    assert metadata["Author"] == "Delegraph developers"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Requires-Python"] == ">=3.11"
    assert len(set(metadata["Keywords"].split(","))) >= 4
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip() == (distribution.folder / "README.md").read_text("utf-8").strip()
    assert {url.partition(",")[0] for url in metadata.get_all("Project-URL")} == {
        "Source",
        "Documentation",
        "Changelog",
    }
    assert {"Programming Language :: Python :: 3.11", "Typing :: Typed"} <= set(metadata.get_all("Classifier"))

    named = {re.split(r"[ ;<>=!~]", line)[0] for line in metadata.get_all("Requires-Dist")}
    required = {normalised(name.partition("[")[0]) for name in named}.union(*(BROUGHT.get(name, ()) for name in named))
    providers = packages_distributions()
    for package in set(imported(distribution.package)) - {distribution.package.name, MODEL_EXPLORER}:
        known = {normalised(name) for name in providers.get(package, [package])}  # ExecuTorch is not installed here
        assert required & known, f"{package} is imported and not required"


def imported(package: Path) -> Iterator[str]:
    """The top-level packages that modules of `package` import, the standard library's left out; not its templates."""
    for path in (path for path in package.rglob("*.py") if "templates" not in path.parts):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                names = [node.module]
            else:
                continue
            yield from {name.partition(".")[0] for name in names} - sys.stdlib_module_names


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@each
def test_every_distribution_has_the_licence(distribution: Distribution) -> None:
    assert (distribution.folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
