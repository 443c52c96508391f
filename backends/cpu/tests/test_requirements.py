"""What this distribution declares that it needs."""

from __future__ import annotations

import tomllib
from pathlib import Path

import onnxruntime
from packaging.requirements import Requirement

DECLARED = Path(__file__).parents[1] / "pyproject.toml"


def test_only_the_onnxruntime_that_these_tests_run_with_is_declared() -> None:
    """Its minor version: blobs have operators of its own domain, which change from one to the next."""
    listed = tomllib.loads(DECLARED.read_text(encoding="utf-8"))["project"]["dependencies"]
    (declared,) = (Requirement(line).specifier for line in listed if line.startswith("onnxruntime"))
    major, minor, *_ = map(int, onnxruntime.__version__.split(".")[:2])
    assert declared.contains(onnxruntime.__version__)
    assert not declared.contains(f"{major}.{minor - 1}.9")
    assert not declared.contains(f"{major}.{minor + 1}.0")
