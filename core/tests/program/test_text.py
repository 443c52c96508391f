"""The text form of a program, whole: this is what golden tests of emission compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from delegraph.errors import InvalidArgument
from delegraph.program import deserialize_program, from_text, serialize_program, to_text
from delegraph.program.flat_tensor import ExternalData, FlatTensor, TensorLayout
from delegraph.program.schema import (
    AllocationDetails,
    Chain,
    ExecutionPlan,
    ExtraTensorInfo,
    KernelCall,
    Operator,
    Program,
    ScalarType,
    Tensor,
    TensorShapeDynamism,
)

SAMPLE = """\
program version 0
constant 1: 24 bytes
constant 2: 1 bytes
mutable data 1: 8 bytes
blob 0: 4 bytes
blob 1: 0 bytes
named data 'empty': 0 bytes
named data 'k': 5 bytes
named data 'same': 5 bytes

method forward
  inputs %0
  outputs %12, %5
  in_spec [1, null]
  out_spec [1, {}]
  memory 1: 17179869184 bytes
  memory 2: 16 bytes on cuda:1
  delegate 0: Npu, blob 0, target=b'\\x00v2', =b''
  delegate 1: Dsp, blob 1
  delegate 2: Npu, blob 0
  %0 = tensor float [2, 3] at 1+0
  %1 = tensor float [2, 3] order (1, 0) constant 1
  %2 = int -9223372036854775808
  %3 = double -0.0
  %4 = none
  %5 = bool true
  %6 = string 'pfäd'
  %7 = int list [%2, %15, %2]
  %8 = double list [1.5, inf]
  %9 = bool list [true, false]
  %10 = tensor list [%0, %1]
  %11 = optional tensor list [%0, none]
  %12 = tensor bfloat16 up to [4, 2] at 1+8589934592
  %13 = tensor long [] requires_grad at 2+8 mutable data 1 on cuda:1
  %14 = tensor int [5] external 'lm.weight'
  %15 = int 9223372036854775807
  %16 = tensor byte [0, 7] given at run time
  chain 0
    from %0 to %12
    0: aten::add.out(%0, %1, %2, %12, %12)  # model.py:12
    1: delegate 0 Npu(%0, %12)
    2: move %0 to %12  # model.py:12
    3: jump to 5 unless %5
    4: free %0
  chain 1

method get_n
  inputs
  outputs %0
  %0 = int 7
  chain 0
"""


def test_everything_has_its_line(sample: Program) -> None:
    assert to_text(sample) == SAMPLE


def test_names_from_strangers_cannot_spoil_the_terminal() -> None:
    plan = ExecutionPlan(
        "a\nb", (), (), (), (Chain((KernelCall(0, ()),)),), operators=(Operator("aten::\x1b[2J", "out"),)
    )
    lines = to_text(Program((plan,))).splitlines()
    assert "method 'a\\nb'" in lines
    assert "    0: 'aten::\\x1b[2J.out'()" in lines


def test_what_only_some_tensors_have() -> None:
    tensor = Tensor(ScalarType.FLOAT, (2,), (0,), 0, AllocationDetails(1, 0))
    state = replace(tensor, extra_tensor_info=ExtraTensorInfo(fully_qualified_name="state"))
    unbounded = replace(tensor, allocation_info=None, shape_dynamism=TensorShapeDynamism.DYNAMIC_UNBOUND)
    plan = ExecutionPlan("forward", (state, unbounded), (), (), (Chain(()),), non_const_buffer_sizes=(0, 8))
    lines = to_text(Program((plan,))).splitlines()
    assert "  %0 = tensor float [2] at 1+0 'state'" in lines
    assert "  %1 = tensor float unbounded [2] given at run time" in lines


def test_a_repr_counts_bytes_and_shows_none(sample: Program) -> None:
    assert repr(sample) == (
        "Program('forward', 'get_n'; 25 bytes of constants, 8 of mutable data, 4 of delegates, 10 of named data)"
    )
    assert repr(sample.named_data["k"]) == "NamedData(5 bytes, alignment=1)"
    weights = ExternalData(bytes(4000), TensorLayout(ScalarType.FLOAT, (10, 100), (0, 1)))
    assert repr(weights).startswith("ExternalData(4,000 bytes, FLOAT[10, 100]")
    assert repr(FlatTensor({"a": weights, "b": weights})) == "FlatTensor(2 keys; 8,000 bytes)"


def test_a_repr_escapes_names_from_strangers() -> None:
    assert "'\\x1b[2J'" in repr(Program((ExecutionPlan("\x1b[2J", (), (), (), ()),)))


# ---- and back --------------------------------------------------------------------------------------

GOLDEN = sorted((Path(__file__).parents[3] / "tests" / "golden").glob("*.txt"))


def test_a_text_is_read_back() -> None:
    assert to_text(from_text(SAMPLE)) == SAMPLE


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_what_lowering_emits_is_read_back(path: Path) -> None:
    """Each golden program, by way of the bytes of a file as well: what is read is sound."""
    text = path.read_text("utf-8").partition("\n\n")[2]
    program = from_text(text)
    assert to_text(program) == text
    assert to_text(deserialize_program(serialize_program(program))) == text


LINES = ["  %0 = tensr float [2]", "  %0 = tensor quaternion [2]", "  chain 0\n    0: aten::add.out", "blob: 4"]


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_is_none_is_named(line: str) -> None:
    head = "program version 0\n" if line.startswith("blob") else "program version 0\n\nmethod forward\n  inputs\n"
    with pytest.raises(InvalidArgument, match=r"line \d: .* is no line of a program's text"):
        from_text(f"{head}{line}\n")
