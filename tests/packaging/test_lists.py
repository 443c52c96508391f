"""Lists of distributions, for people and for tools: each names all that there are, so that none is forgotten."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version
from tests.test_public_names import STRANGERS
from tools.distributions import DISTRIBUTIONS, ROOT, Distribution
from tools.environments import SETTINGS as DEFAULTS

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
HOST, *PLUGINS = DISTRIBUTIONS
LONG = {"backends/openvino/tests": "make test-openvino"}
"""Folders of tests that `make test` leaves out, each with what runs it."""


def contract(name: str) -> dict[str, Any]:
    """import-linter's contract of that name."""
    (settings,) = [rule for rule in SETTINGS["importlinter"]["contracts"] if rule["name"].startswith(name)]
    return settings


def relative(folder: Path) -> str:
    return folder.relative_to(ROOT).as_posix()


def project(distribution: Distribution) -> dict[str, Any]:
    """The `project` of its pyproject.toml."""
    settings: dict[str, Any] = tomllib.loads((distribution.folder / "pyproject.toml").read_text("utf-8"))
    return dict(settings["project"])


def needs_torch(distribution: Distribution) -> bool:
    """Whether it requires torch, extras left out."""
    return any(re.match(r"torch\b|delegraph\[aot\]", line) for line in project(distribution)["dependencies"])


def torch_free() -> set[str]:
    """What is installed where torch is not: runtime halves, and plug-ins that do not require torch."""
    halved = {plugin for plugin in PLUGINS if (plugin.package / "runtime").is_dir()}
    whole = {plugin for plugin in PLUGINS if plugin not in halved and not needs_torch(plugin)}
    return {f"{plugin.package.name}.runtime" for plugin in halved} | {plugin.package.name for plugin in whole}


# ---- tools -----------------------------------------------------------------------------------------


def test_ruff_knows_where_our_packages_are() -> None:
    assert set(SETTINGS["ruff"]["src"]) == {relative(distribution.package.parent) for distribution in DISTRIBUTIONS}


def test_every_folder_of_tests_is_run() -> None:
    folders = [ROOT / "tests", *ROOT.glob("*/tests"), *ROOT.glob("*/*/tests")]
    there = {relative(folder) for folder in folders if "build" not in folder.parts}
    assert {*SETTINGS["pytest"]["ini_options"]["testpaths"], *LONG} == there


def test_the_floors_are_those_of_every_package() -> None:
    packages = {plugin.package.name for plugin in PLUGINS}
    assert set(SETTINGS["importlinter"]["root_packages"]) == {HOST.package.name, *packages}
    assert set(contract("the core names no backend")["forbidden_modules"]) >= packages
    assert set(contract("plug-ins use what a stranger could")["source_modules"]) == packages


def test_no_runtime_half_is_forgotten() -> None:
    assert set(contract("torch is nowhere")["source_modules"]) >= torch_free()
    assert set(contract("a plug-in's runtime half")["source_modules"]) >= torch_free()


def test_a_runtime_half_meets_no_other_half() -> None:
    halves = {f"{plugin.package.name}.aot" for plugin in PLUGINS if (plugin.package / "aot").is_dir()}
    assert set(contract("a plug-in's runtime half")["forbidden_modules"]) >= halves


# ---- people ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "heading", "pattern"),
    [
        ("README.md", "## What is here", r"^\| `(delegraph\S*)` \|"),
        ("ARCHITECTURE.md", "**Distributions**", r"`(delegraph[\w-]*)`"),
    ],
)
def test_documents_name_every_distribution(document: str, heading: str, pattern: str) -> None:
    _, heading_there, rest = (ROOT / document).read_text("utf-8").partition(heading)
    assert heading_there
    section = rest.partition("\n## ")[0]
    assert set(re.findall(pattern, section, re.MULTILINE)) == {distribution.name for distribution in DISTRIBUTIONS}


def test_every_distribution_has_its_tests() -> None:
    for distribution in DISTRIBUTIONS:
        tests = distribution.package.parent / "tests"
        elsewhere = ROOT / "tests" / distribution.folder.name
        assert any((tests if tests.is_dir() else elsewhere).rglob("test_*.py")), distribution.name


def test_every_plug_in_is_held_to_public_names() -> None:
    checked = {plugin.name for plugin in PLUGINS for folder in STRANGERS if plugin.folder.is_relative_to(folder)}
    assert checked == {plugin.name for plugin in PLUGINS}


# ---- versions --------------------------------------------------------------------------------------


def test_the_oldest_torch_that_is_admitted_is_the_oldest_that_tests_run_on() -> None:
    """An older torch lacks operators, and has other private names."""
    projects = map(project, DISTRIBUTIONS)
    groups = [group for p in projects for group in (p["dependencies"], *p.get("optional-dependencies", {}).values())]
    admitted = {line for group in groups for line in group if re.match(r"torch\b", line)}
    oldest = Version(DEFAULTS["TORCH"].removeprefix("torch=="))
    assert oldest < min(map(Version, DEFAULTS["TORCHES"].split()))
    assert admitted == {f"torch>={oldest.major}.{oldest.minor}"}


def test_what_a_runtime_brings_is_what_the_readme_says() -> None:
    (sentence,) = re.findall(r"pip brings ([^.]*)\.", (ROOT / "README.md").read_text("utf-8"))
    assert set(re.findall(r"`(\w[\w-]*)`", sentence)) == {
        re.split("[<>=]", line)[0] for line in project(HOST)["dependencies"]
    }
