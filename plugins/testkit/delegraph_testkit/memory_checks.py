"""Memory planners where a board has several memories, of sizes: programs are lowered for it, and run."""

from __future__ import annotations

from typing import Any

import delegraph
from delegraph.errors import LoweringError
from delegraph.interfaces import Memory, MemoryHierarchy
from delegraph_testkit.bench import Bench
from delegraph_testkit.lowering import expected_calls, lowered_onto
from delegraph_testkit.models import example
from delegraph_testkit.opaque import kernel_order
from delegraph_testkit.running import check_call

__all__ = ["several_memories_are_planned", "small_memories_are_refused"]


def several_memories_are_planned(bench: Bench, model: str) -> None:
    """Where a fast memory has room for a part, tensors lie in both, the fast one suffices, and results are torch's."""
    whole = _lowered(bench, model, Memory("dram", None)).program.memory["forward"].buffer_sizes[1]
    lowered = _lowered(bench, model, Memory("dram", None), Memory("sram", whole // 2, speed=8, alignment=64))
    sizes = lowered.program.memory["forward"].buffer_sizes
    assert all(sizes[1:]), f"{model}: of two memories it plans {sizes[1]:,} and {sizes[2]:,} bytes"
    module = delegraph.load(bytes(lowered), kernels=kernel_order())
    for call in expected_calls(example(model)):
        check_call(bench, call, module["forward"].method.execute(call.inputs), model)


def small_memories_are_refused(bench: Bench, model: str) -> None:
    """A memory in which the program has no room is an error that names it, before anything runs."""
    try:
        sizes = _lowered(bench, model, Memory("sram", 64)).program.memory["forward"].buffer_sizes
    except LoweringError as error:
        told = str(error)
    else:
        raise AssertionError(f"{model}: the plan is said to take {sizes[1:]} bytes, of a memory of 64")
    assert "'sram'" in told, f"{model}: the error does not name the memory that is too small: {told}"


def _lowered(bench: Bench, model: str, *memories: Memory) -> Any:
    return lowered_onto(example(model), [], memory_planner=bench.subject.name, memory=MemoryHierarchy(memories))
