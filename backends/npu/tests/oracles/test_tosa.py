"""Every command computes what Arm's TOSA reference model computes, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from backends.npu.tests.cases import Case, cases
from backends.npu.tests.harness import run_one
from backends.npu.tests.oracles.tosa import tosa
from backends.npu.tests.vectors import roundings

pytestmark = pytest.mark.oracles

RUNS = [(case, rounding) for case in cases() for rounding in roundings(case)]


@pytest.mark.parametrize(("case", "rounding"), RUNS, ids=[f"{case.name}, {rounding}" for case, rounding in RUNS])
def test_a_command_is_bit_exact(case: Case, rounding: str) -> None:
    found = run_one(case.builder, case.command, case.inputs, rounding)
    assert len(np.unique(found)) > 1 or found.size == 1, "a constant output proves little"
    np.testing.assert_array_equal(found, tosa(case, rounding))
