"""These tests run in ExecuTorch's environment (`make test-upstream`); elsewhere they are skipped, but for those
of `test_without_executorch.py`, which are about its absence."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

HERE = find_spec("executorch") is not None

collect_ignore = [] if HERE else ["test_memory_planning.py", "test_tail.py"]
"""They import, under `delegraph_executorch`, modules that are the wheel's own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("executorch") and item.path.parent.name == "bridge" and not HERE:
            item.add_marker(pytest.mark.skip(reason="runs where the wheel executorch is: `make test-upstream`"))
