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


def constant(tests: str, module: str, name: str, value: str, *moved: str) -> Limit:
    """`name = value`, which may not be one less or more, or as far away as `moved` says."""
    others = tuple(f"{name} = ({value}) {by}" for by in moved or ("- 1", "+ 1"))
    return Limit(module, f"{name} = {value}", others, tests)


def moved(name: str, least: int, end: int) -> tuple[str, ...]:
    """`name: Final = range(least, end)` with each of its ends one less, and one more."""
    ends = ((least - 1, end), (least + 1, end), (least, end - 1), (least, end + 1))
    return tuple(f"{name}: Final = range({first}, {last})" for first, last in ends)


RUNS = "core/tests/runtime/test_limits.py"
VERIFIED = "core/tests/program/test_limits.py"
METADATA = "core/tests/program/test_user_metadata.py"
FRAMES = "core/tests/runtime/test_frames.py"
RECORDS = "core/tests/aot/test_limits.py"
YAML = "core/tests/codegen/test_check.py"
CPU, OPENVINO, NPU, DSP = (f"backends/{name}/tests/test_limits.py" for name in ("cpu", "openvino", "npu", "dsp"))
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
    constant(VERIFIED, "delegraph.runtime.calls.pytree", "MAX_DEPTH: Final", "64"),
    constant(METADATA, "delegraph.program.user_metadata", "MOST_NBYTES: Final", "2**20"),
    constant(VERIFIED, "delegraph.program.contract", "MAX_DEPTH: Final", "32"),
    constant(VERIFIED, "delegraph.program.checks.verify", "MAX_ALIGNMENT: Final", "2**30", "* 2", "// 2"),
    constant(VERIFIED, "delegraph.program.checks.verify_values", "MAX_RANK: Final", "16"),
    constant(VERIFIED, "delegraph.program.checks.verify_values", "MAX_SIZE: Final", "2**31 - 1"),
    constant(VERIFIED, "delegraph.program.checks.verify_values", "MAX_NBYTES: Final", "2**63 - 1", "* 2", "// 2"),
    # what an isolated process sends
    constant(FRAMES, "delegraph.runtime.isolation.frames", "_MOST_JSON: Final", "2**26"),
    constant(FRAMES, "delegraph.runtime.isolation.frames", "_MOST_DIMS: Final", "64"),
    Limit(
        "delegraph.runtime.isolation.frames",
        "sum(nbytes) > most_nbytes",
        ("sum(nbytes) >= most_nbytes", "sum(nbytes) > most_nbytes + 1"),
        FRAMES,
    ),
    # kernels.yaml
    constant(YAML, "delegraph.codegen.read", "MAX_NODES: Final", "50_000"),
    # ETRecords
    constant(RECORDS, "delegraph.aot.etrecord.texts", "_DEEPEST: Final", "64"),
    Limit("delegraph.aot.etrecord.texts", "if depth > _DEEPEST", ("if depth >= _DEEPEST",), RECORDS),
    Limit("delegraph.aot.etrecord.texts", "depth <= _DEEPEST", ("depth < _DEEPEST", "True"), RECORDS),
    constant(RECORDS, "delegraph.aot.etrecord.tensors", "MOST_VALUES: Final", "1_000_000"),
    constant(RECORDS, "delegraph.aot.etrecord.tensors", "MOST_DEPTH: Final", "64"),
    Limit(
        "delegraph.aot.etrecord.tensors",
        "<= MOST_DEPTH, ",
        ("< MOST_DEPTH, ", "<= MOST_DEPTH + 1, "),
        RECORDS,
    ),
    constant(RECORDS, "delegraph.aot.etrecord.tensors", "MOST_REPEATED: Final", "2**24"),
    Limit("delegraph.aot.etrecord.tensors", "n < 2**63 for", ("n < 2**63 - 1 for", "n <= 2**63 for"), RECORDS),
    constant(RECORDS, "delegraph.aot.etrecord.typed_json", "DEEPEST: Final", "200"),
    constant(RECORDS, "delegraph.aot.etrecord.expressions", "LONGEST: Final", "4096"),
    constant(RECORDS, "delegraph.aot.etrecord.expressions", "DEEPEST: Final", "40"),
    constant(RECORDS, "delegraph.aot.etrecord.expressions", "HIGHEST: Final", "4"),
    constant(RECORDS, "delegraph.aot.etrecord.expressions", "_MANY: Final", "64"),
    Limit("delegraph.aot.etrecord.expressions", r"\d{0,6}", (r"\d{0,5}", r"\d{0,7}"), RECORDS),
    Limit("delegraph.aot.etrecord.expressions", r"\w{0,63}", (r"\w{0,62}", r"\w{0,64}"), RECORDS),
    Limit(
        "delegraph.aot.etrecord.expressions",
        "abs(number) < 2**63",
        ("abs(number) < 2**63 - 1", "abs(number) <= 2**63"),
        RECORDS,
    ),
    # graphs and blobs of the cpu backend
    constant(CPU, "delegraph_cpu.graphs.wire", "_DEEPEST: Final", "100"),
    Limit("delegraph_cpu.graphs.wire", "value >= 2**31", ("value >= 2**31 - 1", "value > 2**31"), CPU),
    Limit("delegraph_cpu.graphs.wire", "value >= 2**64", ("value >= 2**64 - 1", "value > 2**64"), CPU),
    Limit("delegraph_cpu.graphs.wire", "range(0, 70, 7)", ("range(0, 63, 7)",), CPU),
    constant(CPU, "delegraph_cpu.graphs.attributes", "_LARGEST: Final", "2**31 - 1"),
    constant(CPU, "delegraph_cpu.graphs.attributes", "_DIMS: Final", "64"),
    Limit("delegraph_cpu.graphs.attributes", "range(least, most + 1)", ("range(least, most)",), CPU),
    constant(CPU, "delegraph_cpu.graphs.checks", "_MOST_DIMS: Final", "64"),
    constant(CPU, "delegraph_cpu.graphs.checks", "_MOST_ELEMENTS: Final", "2**59"),
    *(
        Limit("delegraph_cpu.graphs.checks", f"{name}: Final = range({least}, {end})", moved(name, least, end), CPU)
        for name, least, end in (("OPSETS", 20, 24), ("_OTHER_OPSETS", 1, 6), ("_IR_VERSIONS", 8, 13))
    ),
    constant(CPU, "delegraph_cpu.blob", "_MOST_DIMS: Final", "32"),
    Limit("delegraph_cpu.blob", ">= 2**63", (">= 2**63 - 16", ">= 2**63 + 16"), CPU),
    # OpenVINO's IR
    constant(OPENVINO, "delegraph_openvino.ir.attributes", "_LARGEST: Final", "2**31 - 1"),
    constant(OPENVINO, "delegraph_openvino.ir.attributes", "_MOST_DIMS: Final", "64"),
    Limit("delegraph_openvino.ir.attributes", "[0-9]{0,9})", ("[0-9]{0,8})", "[0-9]{0,10})"), OPENVINO),
    Limit("delegraph_openvino.ir.attributes", "range(2)", ("range(1)", "range(3)"), OPENVINO),
    constant(OPENVINO, "delegraph_openvino.ir.operations", "MOST: Final", "2**12"),
    constant(OPENVINO, "delegraph_openvino.ir.reading", "_DEEPEST: Final", "16"),
    constant(OPENVINO, "delegraph_openvino.ir.reading", "_DIGITS: Final", "10"),
    # commands of the npu
    constant(NPU, "delegraph_npu.runtime.validate", "_MOST_KERNEL_ELEMENTS: Final", "1 << 16"),
    constant(NPU, "delegraph_npu.runtime.validate", "_MOST_PADDED_ELEMENTS: Final", "1 << 28"),
    constant(NPU, "delegraph_npu.runtime.validate", "_MOST_SCALE: Final", "1 << 11"),
    Limit(
        "delegraph_npu.runtime.validate",
        "_SHIFTS: Final = range(2, 63)",
        moved("_SHIFTS", 2, 63),
        NPU,
    ),
    Limit("delegraph_npu.runtime.validate", "min(scales) >= 1", ("min(scales) >= 0", "min(scales) > 1"), NPU),
    Limit(
        "delegraph_npu.runtime.validate",
        "left_shift <= 32 - bits",
        ("left_shift < 32 - bits", "left_shift <= 33 - bits"),
        NPU,
    ),
    Limit("delegraph_npu.runtime.validate", "byte_range.end <= size", ("byte_range.end < size", "True"), NPU),
    Limit("delegraph_npu.runtime.validate", "max(pads) < reach", ("max(pads) < reach - 1", "max(pads) <= reach"), NPU),
    Limit(
        "delegraph_npu.runtime.validate",
        "0 <= command.operator < operators",
        (
            "-1 <= command.operator < operators",
            "0 <= command.operator <= operators",
            "0 < command.operator < operators",
        ),
        NPU,
    ),
    constant(NPU, "delegraph_npu.blob", "_RANK: Final", "6"),
    Limit("delegraph_npu.blob", ">= 2**60", (">= 2**60 - 1", "> 2**60"), NPU),
    constant(NPU, "delegraph_npu.device", "_LARGEST: Final", "1 << 31"),
    # programs of the dsp
    constant(DSP, "delegraph_dsp.binary", "MOST_RANK: Final", "8"),
    constant(DSP, "delegraph_dsp.device", "CHANNELS", "4"),
    constant(DSP, "delegraph_dsp.device", "MOST_TCM_NBYTES", "1 << 30"),
    Limit(
        "delegraph_dsp.device",
        "16 <= self.vector_registers <= 256",
        ("17 <= self.vector_registers <= 256", "15 <= self.vector_registers <= 256", "16 <= self.vector_registers"),
        DSP,
    ),
    constant(DSP, "delegraph_dsp.runtime.validator", "WORD: int", "64"),
    constant(DSP, "delegraph_dsp.runtime.validator", "MOST_REPEATS: int", "8"),
    Limit(
        "delegraph_dsp.runtime.validator",
        "prod(operand.shape) > MOST_REPEATS",
        ("prod(operand.shape) >= MOST_REPEATS",),
        DSP,
    ),
    Limit("delegraph_dsp.runtime.validator", ">= 2**62", (">= 2**62 - 1", "> 2**62"), DSP),
    Limit(
        "delegraph_dsp.runtime.validator", "transfer.end > region", ("transfer.end >= region", "False and region"), DSP
    ),
    Limit(
        "delegraph_dsp.runtime.validator",
        "transfer.stride > region",
        ("transfer.stride >= region", "transfer.stride > 1 + region"),
        DSP,
    ),
    Limit(
        "delegraph_dsp.runtime.validator",
        "transfer.nbytes > program.tcm_nbytes",
        ("transfer.nbytes >= program.tcm_nbytes", "transfer.nbytes > 1 + program.tcm_nbytes"),
        DSP,
    ),
    Limit(
        "delegraph_dsp.runtime.validator",
        "program.tcm_nbytes > device.tcm_nbytes",
        ("program.tcm_nbytes >= device.tcm_nbytes", "program.tcm_nbytes > 1 + device.tcm_nbytes"),
        DSP,
    ),
    Limit(
        "delegraph_dsp.runtime.validator",
        "operator.result.end > _room",
        ("operator.result.end >= _room", "operator.result.end > 1 + _room"),
        DSP,
    ),
    Limit("delegraph_dsp.runtime.validator", "result.region < len", ("result.region <= len",), DSP),
    Limit(
        "delegraph_dsp.runtime.validator",
        "transfer.stride < transfer.row_nbytes",
        ("transfer.stride <= transfer.row_nbytes", "transfer.stride + 1 < transfer.row_nbytes"),
        DSP,
    ),
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
