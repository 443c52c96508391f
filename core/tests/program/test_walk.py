"""Every part of a program is met once, in the order of the file, with its place and name."""

from __future__ import annotations

import pytest

from delegraph.interfaces.stamp import BlobStamp, stamps_by_backend
from delegraph.program import walk
from delegraph.program.kernel_calls import needed_kernels, read_tensors
from delegraph.program.schema import (
    BackendDelegate,
    Chain,
    ContainerMetadata,
    DelegateCall,
    ExecutionPlan,
    ExtraTensorInfo,
    FreeCall,
    Int,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Operator,
    OptionalTensorList,
    Program,
    ScalarType,
    Tensor,
    TensorDataLocation,
    TensorList,
)

FLOAT = Tensor(ScalarType.FLOAT, (2, 3), (0, 1))
HALF = Tensor(ScalarType.HALF, (2, 3), (1, 0))
WEIGHT = Tensor(
    ScalarType.FLOAT,
    (4,),
    (0,),
    extra_tensor_info=ExtraTensorInfo(fully_qualified_name="w", location=TensorDataLocation.EXTERNAL),
)
NEW, OLD = BlobStamp("Npu", "delegraph-npu", "2.0", 1), BlobStamp("Npu", "delegraph-npu", "1.0", 1)

ADD, SYM_SIZE = Operator("aten::add", "out"), Operator("executorch_prim::add", "Scalar")
FIRST = (KernelCall(0, (0, 1, 1)), MoveCall(0, 1), KernelCall(1, (3, 3, 3)))
SECOND = (DelegateCall(0, (0, 2)), JumpFalseCall(3, 2), KernelCall(0, (0, 0, 0)), FreeCall(1))
FORWARD = ExecutionPlan(
    "forward",
    (FLOAT, HALF, WEIGHT, Int(1), TensorList((0, 1)), OptionalTensorList((2, -1, 0))),
    (0,),
    (1,),
    (Chain(FIRST), Chain(SECOND)),
    (ADD, SYM_SIZE),
    (
        BackendDelegate("Npu", 0, (NEW.to_compile_spec(),)),
        BackendDelegate("Dsp", 1, ()),
        BackendDelegate("Npu", 0, (NEW.to_compile_spec(),)),
    ),
    (0,),
    ContainerMetadata("", ""),
)
OTHER = ExecutionPlan(
    "other",
    (HALF, WEIGHT),
    (0,),
    (0,),
    (Chain(()),),
    (),
    (BackendDelegate("Npu", 1, (OLD.to_compile_spec(),)),),
    (0,),
    ContainerMetadata("", ""),
)
PROGRAM = Program((FORWARD, OTHER), delegate_data=(b"a", b"b"))


def test_instructions_have_their_places() -> None:
    places, met = zip(*walk.instructions(FORWARD), strict=True)
    assert places == ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3))
    assert met == FIRST + SECOND


def test_kernel_calls_name_their_operators() -> None:
    assert list(walk.kernel_calls(FORWARD)) == [
        ((0, 0), "aten::add.out", FIRST[0]),
        ((0, 2), "executorch_prim::add.Scalar", FIRST[2]),
        ((1, 2), "aten::add.out", SECOND[2]),
    ]


def test_each_kind_of_instruction_has_its_operands() -> None:
    assert [walk.operands(instruction) for instruction in FIRST] == [(0, 1, 1), (0, 1), (3, 3, 3)]
    assert [walk.operands(instruction) for instruction in SECOND] == [(0, 2), (3,), (0, 0, 0), (1,)]


def test_lists_count_as_their_tensors() -> None:
    assert list(walk.tensor_indices((3, 1, 4, 5), FORWARD.values)) == [1, 0, 1, 2, 0]


def test_kernels_needed_are_those_of_libraries_once_for_each_key() -> None:
    float_, half = (ScalarType.FLOAT, (0, 1)), (ScalarType.HALF, (1, 0))
    assert needed_kernels(FORWARD) == {("aten::add.out", (float_, half)), ("aten::add.out", (float_, float_))}


@pytest.mark.parametrize(
    ("args", "read"),
    [
        ((0, 1, 1), (0,)),
        ((0, 0, 0), (0,)),  # in place
        ((0, 1, 0, 0), (0, 1)),
        ((2, 4, 4), (2,)),  # into a list
        ((2, 0, 1, 4), (2,)),  # into two tensors, which a list repeats
        ((0, 1, 0, 1, 4), (0, 1)),
        ((4, 4, 4), (0, 1)),
        ((0, 1, 3), (0, 1)),  # a scalar
    ],
)
def test_what_a_call_reads_stands_before_its_out_tensors(args: tuple[int, ...], read: tuple[int, ...]) -> None:
    assert read_tensors(args, FORWARD.values) == read


def test_all_methods_are_gone_through() -> None:
    assert [delegate.id for delegate in walk.delegates(PROGRAM)] == ["Npu", "Dsp", "Npu", "Npu"]
    assert list(walk.tensors(PROGRAM)) == [FLOAT, HALF, WEIGHT, HALF, WEIGHT]
    assert walk.external_names(PROGRAM) == {"w"}


def test_stamps_come_once_in_the_order_of_the_blobs() -> None:
    assert stamps_by_backend(PROGRAM) == {"Npu": (NEW, OLD), "Dsp": ()}
