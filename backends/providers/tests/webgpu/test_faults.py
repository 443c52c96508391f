"""Faults within delegates of WebGPU are named by module and line, as those of other backends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import test_faults_are_named as faults

pytestmark = pytest.mark.accelerators


def test_a_slow_layer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    faults.test_a_slow_layer("webgpu", tmp_path, capsys)


def test_a_large_weight() -> None:
    faults.test_a_large_weight("webgpu")


def test_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    faults.test_a_wrong_kernel("webgpu", monkeypatch)


def test_a_lossy_layer() -> None:
    faults.test_a_lossy_layer("webgpu")
