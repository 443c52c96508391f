"""The library as the runtime meets it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from tests.kernels.oracle import Oracle

from delegraph.runtime import KernelRegistry
from delegraph_portable import library

EXECUTORCH = Path(__file__).with_name("executorch_operators.txt").read_text().split()
"""The operators that ExecuTorch 1.4.1 registers: portable kernels, three that only its optimized library has, the
quantized ones."""


def test_every_operator_of_executorch_has_a_kernel() -> None:
    """Copies to and from devices are the runtime's own here."""
    assert set(EXECUTORCH) - library.operator_names() == {"et_copy::_d2h_copy.out", "et_copy::_h2d_copy.out"}


def test_a_registry_finds_the_fallback_for_any_key() -> None:
    kernel = KernelRegistry([library]).lookup("aten::add.out", ())
    assert kernel.library == "portable"
    assert kernel.key is None


def test_importing_it_imports_nothing_heavy() -> None:
    program = (
        "import sys, delegraph_portable; print(*{m.partition('.')[0] for m in sys.modules} & {'torch', 'ml_dtypes'})"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_a_bound_call_sees_new_inputs_and_allocates_no_output(oracle: Oracle) -> None:
    a, b, out = np.ones(3, np.float32), np.ones(3, np.float32), np.zeros(3, np.float32)
    call = oracle.bind("aten::add.out", [a, b, 1], [out])
    call()
    a[:] = 5
    call()
    assert out.tolist() == [6, 6, 6]


def test_constant_weights_are_packed_once(oracle: Oracle) -> None:
    image, weight = np.ones((1, 1, 4, 4), np.float16), np.ones((1, 1, 3, 3), np.float16)
    out = np.zeros((1, 1, 2, 2), np.float16)
    arguments = [image, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1]
    constant = oracle.bind("aten::convolution.out", arguments, [out], constant=True)
    variable = oracle.bind("aten::convolution.out", arguments, [out], constant=False)
    weight[:] = 2  # what a constant never does: the packed copy does not see it
    constant()
    assert out.max() == 9
    variable()
    assert out.max() == 18


def test_dynamic_outputs_are_resized(oracle: Oracle) -> None:
    (out,) = oracle.kernel("aten::nonzero.out", [np.array([0, 1, 1])], [np.zeros((3, 1), np.int64)], "run")
    assert out.tolist() == [[1], [2]]
