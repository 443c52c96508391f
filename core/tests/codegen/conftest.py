"""A user's package `sample_ops` that can be imported, its operators defined."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def sample_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    import_module("sample_ops.operators")
