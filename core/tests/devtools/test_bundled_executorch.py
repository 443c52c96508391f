"""ExecuTorch as the reference: we read and verify the bundled programs it writes, and it those that we write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delegraph.devtools import (
    BundledProgram,
    BundledTensor,
    MethodTestCase,
    MethodTestSuite,
    load_bundled_program,
    verify_bundled_program,
    write_bundled_program,
)
from delegraph.plugins.registry import PluginRegistry, use_registry

pytestmark = pytest.mark.executorch

Peer = Callable[..., Any]

OTHERWISE = {"mixed"}
"""Here tensors lie channels last, as the method has its own. ExecuTorch writes them contiguous, and its runtime aborts
at what it wrote (`tensors_are_close` in `devtools/bundled_program/bundled_program.cpp`)."""


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    """Here the programs are ExecuTorch's, and the kernels those that are installed."""
    with use_registry(PluginRegistry.discover()):
        yield


@pytest.fixture(scope="module")
def theirs(executorch: Peer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A folder of its bundled programs, and what its reader finds in each."""
    folder = tmp_path_factory.mktemp("theirs")
    return folder, executorch("bundle", folder)


def shown(bundled: BundledProgram) -> Any:
    """As `executorch_peer.plain` shows ExecuTorch's records; `data` without what a storage has beyond its tensor."""

    def value(value: Any) -> Any:
        if isinstance(value, BundledTensor):
            return {
                "kind": "Tensor",
                "scalar_type": int(value.scalar_type),
                "sizes": list(value.sizes),
                "data": bytes(value.data).hex(),
                "dim_order": list(value.dim_order),
            }
        kind, field = {bool: ("Bool", "bool_val"), int: ("Int", "int_val"), float: ("Double", "double_val")}[
            type(value)
        ]
        return {"kind": kind, field: value}

    def values(values: Any) -> Any:
        return [{"kind": "Value", "val": value(item)} for item in values]

    return {
        "kind": "BundledProgram",
        "version": 2,
        "method_test_suites": [
            {
                "kind": "BundledMethodTestSuite",
                "method_name": suite.method_name,
                "test_cases": [
                    {
                        "kind": "BundledMethodTestCase",
                        "inputs": values(case.inputs),
                        "expected_outputs": values(case.expected_outputs),
                    }
                    for case in suite.test_cases
                ],
            }
            for suite in bundled.suites
        ],
        "program": bytes(bundled.buffer).hex(),
    }


def test_we_read_and_verify_what_executorch_writes(theirs: tuple[Path, Any]) -> None:
    folder, contents = theirs
    assert len(contents) == 4
    for name, expected in contents.items():
        bundled = load_bundled_program(folder / f"{name}.bpte")
        assert name in OTHERWISE or shown(bundled) == expected
        for result in verify_bundled_program(bundled, atol=1e-6):
            assert result.verdict == "ok", (name, result.reason)


def test_executorch_verifies_what_we_write(executorch: Peer, theirs: tuple[Path, Any], tmp_path: Path) -> None:
    """Its programs and cases, bundled by us from arrays that lie in memory as NumPy likes."""
    files = []
    for path in sorted(theirs[0].glob("*.bpte")):
        read = load_bundled_program(path)
        (suite,) = read.method_test_suites
        cases = [
            MethodTestCase(
                [np.ascontiguousarray(v) if isinstance(v, np.ndarray) and v.ndim else v for v in case.inputs],
                [np.ascontiguousarray(v) if v.ndim else v for v in case.expected_outputs],
            )
            for case in suite.test_cases
        ]
        bundled = BundledProgram(bytes(read.buffer), [MethodTestSuite("forward", cases)])
        write_bundled_program(bundled, tmp_path / path.name)
        files.append(tmp_path / path.name)
    for name, contents in executorch("read_bundled", *files).items():
        assert (contents == theirs[1][name]) == (name not in OTHERWISE)
    for name, outcomes in executorch("verify", *files).items():
        (suite,) = load_bundled_program(tmp_path / f"{name}.bpte").method_test_suites
        for case, outputs in zip(suite.test_cases, outcomes, strict=True):
            assert not isinstance(outputs, str), (name, outputs)
            for expected, output in zip(case.expected_outputs, outputs, strict=True):
                np.testing.assert_allclose(expected, output, rtol=1e-5, atol=1e-6)


def test_both_find_the_case_that_differs(executorch: Peer, theirs: tuple[Path, Any], tmp_path: Path) -> None:
    read = load_bundled_program(theirs[0] / "add.bpte")
    first, second = read.method_test_suites[0].test_cases
    (right,) = second.expected_outputs
    wrong = MethodTestCase(second.inputs, [right + np.float32(0.01)])
    bundled = BundledProgram(bytes(read.buffer), [MethodTestSuite("forward", [first, wrong])])
    write_bundled_program(bundled, tmp_path / "add.bpte")
    outcomes = executorch("verify", tmp_path / "add.bpte")["add"]
    assert [isinstance(outcome, str) for outcome in outcomes] == [False, True]
    assert [result.verdict for result in verify_bundled_program(bundled, atol=1e-6)] == ["ok", "differs"]
