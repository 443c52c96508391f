"""The fixture of these tests."""

from __future__ import annotations

import pytest
from plugins.portable.tests.oracle import Oracle


@pytest.fixture
def oracle() -> Oracle:
    """Runs kernels, and compares them with torch."""
    return Oracle()
