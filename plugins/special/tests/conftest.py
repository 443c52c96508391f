"""The fixture of these tests."""

from __future__ import annotations

import pytest
import torch
from tests.kernels.oracle import Oracle

torch.set_num_threads(1)  # the tensors are small, and the tests run side by side


@pytest.fixture
def oracle() -> Oracle:
    """Runs kernels, and compares them with torch."""
    return Oracle()
