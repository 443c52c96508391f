"""bytes <-> which methods of a program share their mutable buffers, for which ExecuTorch's schema has no place.

A program carries it as named data under `SHARED_STATE_KEY`, JSON that ExecuTorch ignores:

    {"version": 1, "memory_id": 2, "methods": ["decode", "prefill"]}

Planned memory `memory_id` of these methods is one memory, in which a buffer has one place; 0: no buffer of theirs is
planned, delegates have them all. A file of ExecuTorch's own says nothing: there such buffers lie in memory 2, after all
else (`exir/passes/memory_planning_pass.py`), and its bindings let methods share all memories.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from delegraph.errors import InvalidProgram
from delegraph.lazy_dataclass import dataclass
from delegraph.program.alternatives import methods_of
from delegraph.program.buffers import byte_view
from delegraph.program.contract import CONTRACT_KEY
from delegraph.program.schema import ExecutionPlan, Program, Tensor, TensorShapeDynamism

__all__ = [
    "SHARED_STATE_KEY",
    "SharedBuffers",
    "shared_buffers_of",
    "size_of_memory",
    "tensors_in",
    "write_shared_buffers",
]

SHARED_STATE_KEY: Final = "delegraph.shared_state"
VERSION: Final = 1
EXECUTORCH_MEMORY_ID: Final = 2


@dataclass(frozen=True, slots=True)
class SharedBuffers:
    """The methods that share their mutable buffers, and their planned memory that is one memory (0: none is)."""

    memory_id: int
    methods: frozenset[str]


def write_shared_buffers(shared: SharedBuffers) -> bytes:
    """`shared` as JSON."""
    record = {"version": VERSION, "memory_id": shared.memory_id, "methods": sorted(shared.methods)}
    return json.dumps(record, separators=(",", ":")).encode()


def shared_buffers_of(program: Program) -> SharedBuffers | None:
    """The shared buffers that `program` names, or its plans show if ExecuTorch wrote it. Raises `InvalidProgram`."""
    named = program.named_data.get(SHARED_STATE_KEY)
    if named is not None:
        return _checked(_read(bytes(byte_view(named.data))), program)
    return None if CONTRACT_KEY in program.named_data else _of_executorch(program)


def _read(data: bytes) -> SharedBuffers | None:
    try:
        content = json.loads(data)
        version, memory_id, methods = content["version"], content["memory_id"], content["methods"]
        if not isinstance(version, int) or not isinstance(memory_id, int) or not isinstance(methods, list):
            raise TypeError("a field is of another kind")
        return SharedBuffers(memory_id, frozenset(map(str, methods))) if version <= VERSION else None
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise InvalidProgram(f"the named data {SHARED_STATE_KEY!r} is damaged: {error!r:.200}") from error


def _checked(shared: SharedBuffers | None, program: Program) -> SharedBuffers | None:
    if shared is None:
        return None
    sizes = {plan.name: plan.non_const_buffer_sizes for plan in methods_of(program)}
    if not shared.methods <= sizes.keys() or shared.memory_id < 0:
        raise InvalidProgram(f"the named data {SHARED_STATE_KEY!r} is of methods or a memory that are not there")
    return shared


def _of_executorch(program: Program) -> SharedBuffers | None:
    """Methods whose memories 2 have one size, and hold none of their inputs and outputs."""
    sharing = [plan for plan in methods_of(program) if len(plan.non_const_buffer_sizes) == EXECUTORCH_MEMORY_ID + 1]
    sizes = {plan.non_const_buffer_sizes[EXECUTORCH_MEMORY_ID] for plan in sharing}
    if len(sharing) < 2 or len(sizes) != 1 or not all(map(_holds_buffers_alone, sharing)):
        return None
    return SharedBuffers(EXECUTORCH_MEMORY_ID, frozenset(plan.name for plan in sharing))


def _holds_buffers_alone(plan: ExecutionPlan) -> bool:
    borders = {*plan.inputs, *plan.outputs}
    return not plan.non_const_buffer_device and all(
        index not in borders and record.shape_dynamism is TensorShapeDynamism.STATIC
        for index, record in tensors_in(plan, EXECUTORCH_MEMORY_ID)
    )


def tensors_in(plan: ExecutionPlan, memory_id: int) -> Iterator[tuple[int, Tensor]]:
    """The values of `plan` that lie in its memory `memory_id`."""
    for index, record in enumerate(plan.values):
        place = getattr(record, "allocation_info", None)
        if isinstance(record, Tensor) and place is not None and place.memory_id == memory_id:
            yield index, record


def size_of_memory(plan: ExecutionPlan, memory_id: int) -> int:
    """The bytes of memory `memory_id` of `plan`; 0 if it has no such memory."""
    return sum(plan.non_const_buffer_sizes[memory_id : memory_id + 1])
