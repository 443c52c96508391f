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


def constant(module: str, name: str, value: str, *moved: str) -> Limit:
    """`name: Final = value`, which may not be one less or more, or as far away as `moved` says."""
    line = f"{name}: Final = {value}"
    others = tuple(f"{name}: Final = ({value}) {by}" for by in moved or ("- 1", "+ 1"))
    return Limit(module, line, others, VERIFIED)


RUNS = "core/tests/runtime/test_limits.py"
VERIFIED = "core/tests/program/test_limits.py"
LIMITS = [
    Limit(
        "delegraph.runtime.execution.executor",
        "left -= block.count",
        ("left -= block.count - 1", "left -= 1", "left -= block.count + 1"),
        RUNS,
    ),
    Limit("delegraph.runtime.execution.executor", "if left < 0:", ("if left < 1:", "if left < -1:"), RUNS),
    Limit("delegraph.runtime.execution.executor", "if monotonic() > stop.deadline:", ("if False:",), RUNS),
    Limit(
        "delegraph.program.limits",
        "needed > allowed",
        ("needed >= allowed", "needed > allowed + 1"),
        RUNS,
    ),
    Limit(
        "delegraph.program.limits",
        "sum(plan.non_const_buffer_sizes)",
        ("max(plan.non_const_buffer_sizes)",),
        RUNS,
    ),
    Limit("delegraph.program.limits", "_nbytes(_unplanned(plan)), ", ("0, ",), RUNS),
    Limit("delegraph.program.limits", "dict.fromkeys(plan.outputs)", ("plan.outputs", "()"), RUNS),
    Limit("delegraph.program.limits", "method, needed, ", ("method, 0, ",), RUNS),
    Limit(
        "delegraph.program.limits",
        "self.unplanned_bytes - _nbytes(_unplanned(plan))",
        ("self.unplanned_bytes", "self.unplanned_bytes - _nbytes(_unplanned(plan)) - 1"),
        RUNS,
    ),
    Limit("delegraph.program.limits", "not value >= 0", ("False",), RUNS),
    constant("delegraph.runtime.calls.pytree", "MAX_DEPTH", "64"),
    constant("delegraph.program.contract", "MAX_DEPTH", "32"),
    constant("delegraph.program.checks.verify", "MAX_ALIGNMENT", "2**30", "* 2", "// 2"),
    constant("delegraph.program.checks.verify_values", "MAX_RANK", "16"),
    constant("delegraph.program.checks.verify_values", "MAX_SIZE", "2**31 - 1"),
    constant("delegraph.program.checks.verify_values", "MAX_NBYTES", "2**63 - 1", "* 2", "// 2"),
]
MUTANTS = [(limit, other) for limit in LIMITS for other in limit.others]


@pytest.mark.mutants
@pytest.mark.parametrize(("limit", "other"), MUTANTS, ids=[f"{limit} -> {other}" for limit, other in MUTANTS])
def test_a_limit_that_moved_is_noticed(limit: Limit, other: str) -> None:
    command = [sys.executable, "-m", "tests.mutants.mutate", limit.module, limit.line, other, limit.tests]
    ran = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 1, f"no test of {limit.tests} fails\n{ran.stdout[-2000:]}{ran.stderr[-2000:]}"


@pytest.mark.mutants
@pytest.mark.parametrize("tests", sorted({limit.tests for limit in LIMITS}))
def test_the_tests_pass_without_a_change(tests: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests]
    ran = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout[-2000:]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_each_limit_is_where_it_is_said_to_be(limit: Limit) -> None:
    """In every `make test`, without running a mutant."""
    package, *rest = limit.module.split(".")
    (folder,) = [path for path in ROOT.glob(f"*/{package}") if path.is_dir()] or ROOT.glob(f"*/*/{package}")
    assert folder.joinpath(*rest).with_suffix(".py").read_text("utf-8").count(limit.line) == 1
    assert (ROOT / limit.tests).is_file()
