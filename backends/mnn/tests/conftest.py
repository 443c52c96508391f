"""These tests need MNN: skipped where it is not installed, for the reason that users are told."""

from __future__ import annotations

import pytest

from delegraph_mnn.runtime.backend import MnnBackend


@pytest.fixture(scope="session", autouse=True)
def engine() -> None:
    there = MnnBackend().is_available()
    if not there:
        pytest.skip(f"{there.reason}: {there.fix}")
