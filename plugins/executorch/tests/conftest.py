"""What the tests against ExecuTorch share."""

from __future__ import annotations

from pathlib import Path

import pytest
from plugins.executorch.tests.upstream import suite


@pytest.fixture(scope="session")
def executorch_package() -> Path:
    """The package `executorch` in the environment that `make setup-executorch` makes."""
    try:
        return suite.executorch_package()
    except ValueError:
        pytest.skip("ExecuTorch is not here: run `make setup-executorch`")
