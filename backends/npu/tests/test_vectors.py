"""What the TOSA reference model computed once, every command computes here: `vectors.npz`."""

from __future__ import annotations

import numpy as np
import pytest
from backends.npu.tests import vectors
from backends.npu.tests.cases import cases
from backends.npu.tests.harness import run

VECTORS = vectors.read()


@pytest.mark.parametrize("name", VECTORS)
def test_a_command_is_bit_exact(name: str) -> None:
    vector = VECTORS[name]
    np.testing.assert_array_equal(run(vector.blob, *vector.inputs)[0], vector.output)


def test_there_is_a_vector_for_every_case() -> None:
    expected = {f"{case.name}, {rounding} rounding" for case in cases() for rounding in vectors.roundings(case)}
    assert set(VECTORS) == expected, "PYTHONPATH=build/oracles python -m backends.npu.tests.vectors writes them anew"
