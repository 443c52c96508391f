"""Every limit on what strangers' files may ask for is moved by one, each way: a test of the limit has to fail.

A limit that no test holds is none: `left -= 1` once stood for the count of instructions, and all tests passed.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Limit:
    """A line with a limit, what it may not be, and the tests that hold it."""

    module: str
    line: str
    others: tuple[str, ...]
    tests: str

    def __str__(self) -> str:
        return f"{self.module}: {self.line}"


RUNS = "core/tests/runtime/test_limits.py"
VERIFIED = "core/tests/program/test_limits.py"
LIMITS = [
    Limit(
        "delegraph.runtime.execution.executor",
        "left -= len(block.calls) + 1",
        ("left -= len(block.calls)", "left -= 1", "left -= len(block.calls) + 2"),
        RUNS,
    ),
    Limit("delegraph.runtime.execution.executor", "if left < 0:", ("if left < 1:", "if left < -1:"), RUNS),
    Limit("delegraph.runtime.execution.executor", "if monotonic() > stop.deadline:", ("if False:",), RUNS),
    Limit(
        "delegraph.runtime.execution.limits",
        "needed > allowed",
        ("needed >= allowed", "needed > allowed + 1"),
        RUNS,
    ),
    Limit(
        "delegraph.runtime.execution.limits",
        "sum(plan.non_const_buffer_sizes)",
        ("max(plan.non_const_buffer_sizes)",),
        RUNS,
    ),
    Limit("delegraph.runtime.execution.limits", "_nbytes(_unplanned(plan)), ", ("0, ",), RUNS),
    Limit("delegraph.runtime.execution.limits", "dict.fromkeys(plan.outputs)", ("plan.outputs", "()"), RUNS),
    Limit("delegraph.runtime.execution.limits", "method, needed, ", ("method, 0, ",), RUNS),
    Limit(
        "delegraph.runtime.execution.limits",
        "self.unplanned_bytes - _nbytes(_unplanned(plan))",
        ("self.unplanned_bytes", "self.unplanned_bytes - _nbytes(_unplanned(plan)) - 1"),
        RUNS,
    ),
    Limit("delegraph.runtime.execution.limits", "not value >= 0", ("False",), RUNS),
    Limit(
        "delegraph.runtime.calls.pytree",
        "MAX_DEPTH: Final = 64",
        ("MAX_DEPTH: Final = 63", "MAX_DEPTH: Final = 65"),
        VERIFIED,
    ),
    Limit(
        "delegraph.program.contract",
        "MAX_DEPTH: Final = 32",
        ("MAX_DEPTH: Final = 31", "MAX_DEPTH: Final = 33"),
        VERIFIED,
    ),
    Limit(
        "delegraph.program.checks.verify",
        "MAX_ALIGNMENT: Final = 2**30",
        ("MAX_ALIGNMENT: Final = 2**31", "MAX_ALIGNMENT: Final = 2**29"),
        VERIFIED,
    ),
    Limit(
        "delegraph.program.checks.verify",
        "field_checks.integers(sizes, (0, MAX_NBYTES))",
        ("field_checks.integers(sizes, (-1, MAX_NBYTES))", "field_checks.integers(sizes, (0, MAX_NBYTES - 1))"),
        VERIFIED,
    ),
    Limit(
        "delegraph.program.checks.verify_values",
        "MAX_RANK: Final = 16",
        ("MAX_RANK: Final = 15", "MAX_RANK: Final = 17"),
        VERIFIED,
    ),
    Limit(
        "delegraph.program.checks.verify_values",
        "MAX_SIZE: Final = 2**31 - 1",
        ("MAX_SIZE: Final = 2**31 - 2", "MAX_SIZE: Final = 2**31"),
        VERIFIED,
    ),
    Limit(
        "delegraph.program.checks.verify_values",
        "MAX_NBYTES: Final = 2**63 - 1",
        ("MAX_NBYTES: Final = 2**62", "MAX_NBYTES: Final = 2**64"),
        VERIFIED,
    ),
    Limit(
        "delegraph.codegen.read",
        "MAX_NODES: Final = 50_000",
        ("MAX_NODES: Final = 49_999", "MAX_NODES: Final = 50_001"),
        VERIFIED,
    ),
    Limit(
        "delegraph.aot.etrecord.texts",
        "_DEEPEST: Final = 64",
        ("_DEEPEST: Final = 63", "_DEEPEST: Final = 65"),
        "core/tests/aot/test_hostile_etrecord.py",
    ),
    Limit(
        "delegraph_cpu.graphs.wire",
        "_DEEPEST: Final = 100",
        ("_DEEPEST: Final = 99", "_DEEPEST: Final = 101"),
        "backends/cpu/tests/test_strict_graphs.py",
    ),
    Limit(
        "delegraph_cpu.graphs.checks",
        "_MOST_DIMS: Final = 64",
        ("_MOST_DIMS: Final = 63", "_MOST_DIMS: Final = 65"),
        "backends/cpu/tests/test_strict_graphs.py",
    ),
    Limit(
        "delegraph_cpu.graphs.checks",
        "_MOST_ELEMENTS: Final = 2**59",
        ("_MOST_ELEMENTS: Final = 2**59 - 1", "_MOST_ELEMENTS: Final = 2**59 + 1"),
        "backends/cpu/tests/test_strict_graphs.py",
    ),
    Limit(
        "delegraph_cpu.blob",
        "_MOST_DIMS: Final = 32",
        ("_MOST_DIMS: Final = 31", "_MOST_DIMS: Final = 33"),
        "backends/cpu/tests/test_blob.py",
    ),
    Limit(
        "delegraph_openvino.ir.reading",
        "_DEEPEST: Final = 16",
        ("_DEEPEST: Final = 15", "_DEEPEST: Final = 17"),
        "backends/openvino/tests/test_strict_ir.py",
    ),
    Limit(
        "delegraph_npu.runtime.validate",
        "<= _MOST_KERNEL_ELEMENTS",
        ("< _MOST_KERNEL_ELEMENTS", "<= _MOST_KERNEL_ELEMENTS + 1"),
        "backends/npu/tests/test_validate.py",
    ),
    Limit(
        "delegraph_npu.runtime.validate",
        "<= _MOST_PADDED_ELEMENTS",
        ("< _MOST_PADDED_ELEMENTS", "<= _MOST_PADDED_ELEMENTS + 1"),
        "backends/npu/tests/test_validate.py",
    ),
    Limit(
        "delegraph_npu.runtime.validate",
        "max(scales) <= _MOST_SCALE",
        ("max(scales) < _MOST_SCALE", "max(scales) <= _MOST_SCALE + 1"),
        "backends/npu/tests/test_validate.py",
    ),
]
MUTANTS = [(limit, other) for limit in LIMITS for other in limit.others]


@pytest.mark.mutants
@pytest.mark.parametrize(("limit", "other"), MUTANTS, ids=[f"{limit} -> {other}" for limit, other in MUTANTS])
def test_a_limit_that_moved_is_noticed(limit: Limit, other: str) -> None:
    command = [sys.executable, "-m", "tests.mutants.mutate", limit.module, limit.line, other, limit.tests]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 1, f"no test of {limit.tests} fails\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}"


@pytest.mark.mutants
@pytest.mark.parametrize("tests", sorted({limit.tests for limit in LIMITS}))
def test_the_tests_pass_without_a_change(tests: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout[-2000:]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_each_limit_is_where_it_is_said_to_be(limit: Limit) -> None:
    """In every `make test`, without running a mutant."""
    package, *rest = limit.module.split(".")
    (folder,) = [path for path in ROOT.glob(f"*/{package}") if path.is_dir()] or ROOT.glob(f"*/*/{package}")
    assert folder.joinpath(*rest).with_suffix(".py").read_text("utf-8").count(limit.line) == 1
    assert (ROOT / limit.tests).is_file()
