"""Options and fixtures of this folder's tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--renew", action="store_true", help="write the golden files and generated documents anew")


@pytest.fixture(scope="session")
def executorch_python() -> str:
    """The interpreter of ExecuTorch's environment."""
    python = os.environ.get("DELEGRAPH_EXECUTORCH_PYTHON", str(ROOT / ".venv-executorch" / "bin" / "python"))
    if not Path(python).exists():
        pytest.skip("ExecuTorch is not here: run `make setup-executorch`")
    return python
