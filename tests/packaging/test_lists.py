"""Lists of distributions, for people and for tools: each names all that there are, so that none is forgotten."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.test_public_names import STRANGERS
from tools.distributions import DISTRIBUTIONS, ROOT, Distribution

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]
HOST, *PLUGINS = DISTRIBUTIONS
LONG = {"backends/openvino/tests": "make test-openvino"}
"""Folders of tests that `make test` leaves out, each with what runs it."""


def contract(name: str) -> dict[str, Any]:
    """import-linter's contract of that name."""
    (settings,) = [one for one in SETTINGS["importlinter"]["contracts"] if one["name"].startswith(name)]
    return settings


def relative(folder: Path) -> str:
    return folder.relative_to(ROOT).as_posix()


def required(distribution: Distribution) -> list[str]:
    """What its pyproject.toml requires, without extras."""
    project = tomllib.loads((distribution.folder / "pyproject.toml").read_text("utf-8"))["project"]
    return list(project["dependencies"])


def torch_free() -> set[str]:
    """What is installed where torch is not: a plug-in's runtime half, or all of one that does not require torch."""
    halved = {one for one in PLUGINS if (one.package / "runtime").is_dir()}
    whole = {one for one in PLUGINS if not any(re.match(r"torch\b|delegraph\[aot\]", line) for line in required(one))}
    return {f"{one.package.name}.runtime" for one in halved} | {one.package.name for one in whole - halved}


# ---- tools -----------------------------------------------------------------------------------------


def test_ruff_knows_where_our_packages_are() -> None:
    assert set(SETTINGS["ruff"]["src"]) == {relative(one.package.parent) for one in DISTRIBUTIONS}


def test_every_folder_of_tests_is_run() -> None:
    folders = [ROOT / "tests", *ROOT.glob("*/tests"), *ROOT.glob("*/*/tests")]
    there = {relative(folder) for folder in folders if "build" not in folder.parts}
    assert {*SETTINGS["pytest"]["ini_options"]["testpaths"], *LONG} == there


def test_the_floors_are_those_of_every_package() -> None:
    packages = {one.package.name for one in PLUGINS}
    assert set(SETTINGS["importlinter"]["root_packages"]) == {HOST.package.name, *packages}
    assert set(contract("the core names no backend")["forbidden_modules"]) >= packages
    assert set(contract("plug-ins use what a stranger could")["source_modules"]) == packages


def test_no_runtime_half_is_forgotten() -> None:
    assert set(contract("torch is nowhere")["source_modules"]) >= torch_free()
    assert set(contract("a plug-in's runtime half")["source_modules"]) >= torch_free()


def test_a_runtime_half_meets_no_other_half() -> None:
    halves = {f"{one.package.name}.aot" for one in PLUGINS if (one.package / "aot").is_dir()}
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
    _, found, rest = (ROOT / document).read_text("utf-8").partition(heading)
    assert found
    section = rest.partition("\n## ")[0]
    assert set(re.findall(pattern, section, re.MULTILINE)) == {one.name for one in DISTRIBUTIONS}


def test_every_distribution_has_its_tests() -> None:
    for one in DISTRIBUTIONS:
        tests = one.package.parent / "tests"
        elsewhere = ROOT / "tests" / one.folder.name
        assert any((tests if tests.is_dir() else elsewhere).rglob("test_*.py")), one.name


def test_every_plug_in_is_held_to_public_names() -> None:
    assert [one.name for one in PLUGINS if not any(one.folder.is_relative_to(folder) for folder in STRANGERS)] == []


# ---- versions --------------------------------------------------------------------------------------


def test_the_oldest_torch_that_is_admitted_is_the_one_that_tests_run_on() -> None:
    """Private names of torch are used: an older one has others."""
    projects = [tomllib.loads((one.folder / "pyproject.toml").read_text("utf-8"))["project"] for one in DISTRIBUTIONS]
    groups = [
        group for one in projects for group in (one["dependencies"], *one.get("optional-dependencies", {}).values())
    ]
    admitted = {line for group in groups for line in group if re.match(r"torch\b", line)}
    assert admitted == {f"torch>={'.'.join(torch.__version__.split('.')[:2])}"}


def test_what_a_runtime_brings_is_what_the_readme_says() -> None:
    (sentence,) = re.findall(r"pip brings ([^.]*)\.", (ROOT / "README.md").read_text("utf-8"))
    assert set(re.findall(r"`(\w[\w-]*)`", sentence)) == {re.split("[<>=]", line)[0] for line in required(HOST)}
