"""Buffers of the caller's own for planned memories, by memory id: used where they are, or refused with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import delegraph
from delegraph.errors import InvalidArgument, MemoryAllocationFailed
from delegraph.program.schema import (
    AllocationDetails,
    Chain,
    ExecutionPlan,
    Int,
    KernelCall,
    Operator,
    Program,
    ScalarType,
    Tensor,
)
from delegraph.runtime import HierarchicalAllocator, KernelLibrary, MemoryManager


def tensor(memory_id: int, offset: int = 0) -> Tensor:
    return Tensor(ScalarType.FLOAT, (4,), (0,), allocation_info=AllocationDetails(memory_id, offset))


def adder() -> Program:
    """x + 1 is written to memory 2, x lies in memory 1."""
    values = (tensor(1), Int(1), tensor(2, 16))
    plan = ExecutionPlan(
        "forward",
        values,
        (0,),
        (2,),
        (Chain((KernelCall(0, (0, 1, 1, 2, 2)),)),),
        (Operator("aten::add", "Scalar_out"),),
    )
    return Program((ExecutionPlan(**{**_fields(plan), "non_const_buffer_sizes": (0, 16, 32)}),))


def _fields(plan: ExecutionPlan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__dataclass_fields__}


KERNELS = KernelLibrary("numpy")


@KERNELS.kernel("aten::add.Scalar_out")
def add_scalar(context: Any, a: Any, b: Any, alpha: Any, out: Any) -> None:
    np.add(a, b, context.resize(out, a.shape))


def aligned(nbytes: int, shift: int = 0) -> Any:
    room = np.full(nbytes + 128, 255, np.uint8)
    start = -room.ctypes.data % 64 + shift
    return room[start : start + nbytes]


def load(memory: Mapping[Any, Any]) -> Any:
    return delegraph.load(adder(), kernels=[KERNELS], memory=memory)


def test_a_buffer_is_used_where_it_is_and_the_others_are_allocated() -> None:
    sram = aligned(64)
    run = load({2: sram})
    assert not sram[:32].any(), "planned memory starts as zeros"
    (result,) = run(np.arange(4, dtype=np.float32))
    assert sram[16:32].view(np.float32).tolist() == [1, 2, 3, 4] == result.tolist()
    assert (sram[32:] == 255).all(), "what the plan does not use stays"


def test_all_memories_and_any_kind_of_buffer() -> None:
    first, second = aligned(16), memoryview(aligned(32))
    (result,) = load({1: first, 2: second})(np.ones(4, np.float32))
    assert first.view(np.float32).tolist() == [1, 1, 1, 1] and result.tolist() == [2, 2, 2, 2]


def test_another_session_has_memory_of_its_own() -> None:
    sram = aligned(64)
    run = load({2: sram})
    run(np.ones(4, np.float32))
    run.session()(np.zeros(4, np.float32))
    assert sram[16:32].view(np.float32).tolist() == [2, 2, 2, 2]


def test_buffers_by_method() -> None:
    second = ExecutionPlan(**{**_fields(adder().execution_plan[0]), "name": "other"})
    program = Program((*adder().execution_plan, second))
    sram = aligned(64)
    run = delegraph.load(program, kernels=[KERNELS], memory={"other": {2: sram}})
    run(np.zeros(4, np.float32))
    assert (sram == 255).all()
    run.other(np.ones(4, np.float32))
    assert sram[16:32].view(np.float32).tolist() == [2, 2, 2, 2]


SHARED = aligned(64)


@pytest.mark.parametrize(
    ("memory", "kind", "message"),
    [
        ({"othr": {2: aligned(64)}}, InvalidArgument, "memory is given for method 'othr'; the program has forward"),
        ({3: aligned(64)}, InvalidArgument, "memory is given for memory_id 3; the method has memories 1 to 2"),
        ({0: aligned(64)}, InvalidArgument, "memory is given for memory_id 0"),
        ({2: aligned(31)}, MemoryAllocationFailed, "memory_id 2 needs 32 bytes, given 31"),
        (
            {2: aligned(64, shift=8)},
            InvalidArgument,
            r"memory_id 2: the buffer begins at address 0x\w+, which is not a",
        ),
        ({2: bytes(64)}, MemoryAllocationFailed, "memory given for planned buffers is read-only"),
        ({2: 64}, InvalidArgument, "memory_id 2: int is not a buffer"),
        ({2: aligned(128)[::2]}, InvalidArgument, "memory_id 2: ndarray is not a buffer"),
        ({1: SHARED[16:], 2: SHARED}, InvalidArgument, "the buffers given for memory_id 2 and 1 overlap"),
    ],
)
def test_what_does_not_fit_is_refused(memory: Mapping[Any, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        load(memory)


def test_a_memory_manager_gives_all() -> None:
    program = delegraph.load(adder(), kernels=[KERNELS]).program
    manager = MemoryManager(HierarchicalAllocator.of_sizes([16, 32]))
    with pytest.raises(InvalidArgument, match="memory_manager gives all of a method's memory"):
        program.load_method("forward", memory_manager=manager, memory={2: aligned(64)})
