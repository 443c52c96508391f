"""A program whose methods share mutable buffers -> the memory of these, once for each session.

    prefill.state["cache.k"] ──┐
                               ├── SharedState.memory
    decode.state["cache.k"]  ──┘

Kernels find it in planned memory, delegates by name (`BackendInitContext.mutable_buffer`). Which methods share, the
file says (`program/shared_state.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from delegraph.errors import InvalidProgram, NotSupported
from delegraph.interfaces.platform import Platform
from delegraph.program.checks.verify_values import is_stored
from delegraph.program.limits import Limits
from delegraph.program.schema import ExecutionPlan, Tensor
from delegraph.program.shared_state import size_of_memory, tensors_in
from delegraph.runtime.execution.exclusive import Exclusive
from delegraph.runtime.loaded_program import LoadedProgram
from delegraph.runtime.state import HOST, State, StateBuffer, tensor_text
from delegraph.runtime.values.memory import HierarchicalAllocator, allocate
from delegraph.runtime.values.value_parser import TensorSources, stored_tensor, tensor_view
from delegraph.runtime.values.values import Array, ValueTable, attribute_name

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SharedState:
    """The mutable buffers that methods of one program share; `Program.load_method(…, shared_state=…)` puts one on them.

    Of the methods of one SharedState one runs at a time.
    """

    def __init__(self, program: LoadedProgram) -> None:
        shared = program.shared_buffers
        self.records = program.records
        self.methods = frozenset[str]() if shared is None else shared.methods
        self.memory_id = 0 if shared is None else shared.memory_id
        self.alone = Exclusive(f"one of the methods {', '.join(sorted(self.methods))}, which share their state,", _OWN)
        plans = [program.plan(name) for name in sorted(self.methods)] if self.memory_id else []
        # A buffer has one place in all methods, and the method with the farthest says where the memory ends.
        size = max((size_of_memory(plan, self.memory_id) for plan in plans), default=0)
        self.memory = allocate(program.environment.platform, size) if size else np.empty(0, np.uint8)
        self.buffers: dict[str, StateBuffer] = {}
        sources = program.tensor_sources(HierarchicalAllocator(()))
        for plan in plans:
            for _, record in tensors_in(plan, self.memory_id):
                self._plan(record, sources)

    def _plan(self, record: Tensor, sources: TensorSources) -> None:
        name = buffer_name(record, self)
        known = self.buffers.get(name)
        # Methods name the same place, and the value that it has at first may stand beside one of them alone.
        if known is None or (known.initial is None and is_stored(record)):
            self.buffers[name] = planned_buffer(record, self.memory, sources)
            self.buffers[name].reset()

    def copy_of(self, other: SharedState) -> None:
        """Copy the current contents of `other`, of the same program."""
        buffers = dict(other.buffers)  # more of them come when a delegate is loaded
        contents = State(buffers, [other.alone]).copy() if buffers else {}
        for name, array in contents.items():
            if name not in self.buffers:  # of a delegate that is not loaded here yet
                self.buffers[name] = StateBuffer(np.empty_like(array), buffers[name].initial)
            self.buffers[name].set(array)


_OWN = "give each thread a session of its own: module.session(), or load_method(…, shared_state=SharedState(program))"


def planned_buffer(record: Tensor, memory: NDArray[np.uint8], sources: TensorSources) -> StateBuffer:
    """The buffer of a planned tensor, whose place is in `memory`."""
    assert record.allocation_info is not None
    array = tensor_view(record, memory, record.allocation_info.memory_offset)
    initial = stored_tensor(record, sources.bytes_of(record)) if is_stored(record) else None
    return StateBuffer(array, initial, owner=HOST)


def buffer_name(record: Tensor, shared: SharedState | None) -> str:
    """The buffer's name; of one that methods share without a name, its place, as programs are printed: "2+16"."""
    place = record.allocation_info
    if shared is None or place is None or place.memory_id != shared.memory_id:
        return attribute_name(record)
    return attribute_name(record) or f"{place.memory_id}+{place.memory_offset}"


def buffers_of(
    plan: ExecutionPlan, values: ValueTable, sources: TensorSources, shared: SharedState | None
) -> dict[str, StateBuffer]:
    """The mutable buffers of a loaded method, by name: those that the file names, and those that methods share."""
    known = {} if shared is None else shared.buffers
    buffers: dict[str, StateBuffer] = {}
    for index, record in enumerate(plan.values):
        if isinstance(record, Tensor) and (name := buffer_name(record, shared)):
            buffer = known.get(name) or _buffer(plan, values, sources, index, record)
            if buffer is not None:
                buffers[name] = buffer
    return buffers


def _buffer(
    plan: ExecutionPlan, values: ValueTable, sources: TensorSources, index: int, record: Tensor
) -> StateBuffer | None:
    """The buffer of a named tensor; None for a constant, and for a tensor on a device."""
    if record.allocation_info is not None:
        memory = sources.planned.buffers[record.allocation_info.memory_id - 1]
        return planned_buffer(record, memory, sources) if isinstance(memory, np.ndarray) else None
    moving = values.moving.get(index)
    if moving is None or moving.memory is None or index in (*plan.inputs, *plan.outputs):
        return None
    return StateBuffer(moving.view(moving.bound), is_set=False)


class DelegatesBuffers:
    """The mutable buffers that the delegates of a method ask for by name: from `shared`, or new.

    They are put into `own`. Raises `InvalidProgram` if a buffer is another tensor elsewhere, `NotSupported` if it is on
    a device and in the host's memory, `LimitExceeded` if `limits` do not allow it, and `MemoryAllocationFailed` if
    `platform` has no memory for it.
    """

    def __init__(self, method: str, shared: SharedState | None, limits: Limits, platform: Platform) -> None:
        self.own: dict[str, StateBuffer] = {}
        self._method, self._limits, self._platform = method, limits, platform
        self._known = self.own if shared is None else shared.buffers

    def in_memory(self, name: str, initial: Array) -> Array:
        """`BackendInitContext.mutable_buffer`."""
        return self._buffer(name, initial, HOST).memory

    def on_device(self, backend: str, name: str, initial: Array, make: Callable[[Array], Any]) -> Any:
        """`BackendInitContext.device_buffer` of a delegate of `backend`."""
        buffer = self._buffer(name, initial, backend)
        if buffer.on_device is None:
            buffer.on_device = make(buffer.memory)
        return buffer.on_device

    def _buffer(self, name: str, initial: Array, owner: str) -> StateBuffer:
        buffer = self._known.get(name)
        if buffer is None:
            buffer = self._known[name] = self._new_buffer(initial)
        if buffer.memory.shape != initial.shape or buffer.memory.dtype != initial.dtype:
            raise InvalidProgram(
                f"a delegate keeps a mutable buffer {name!r} of {tensor_text(initial)}, which is"
                f" {tensor_text(buffer.memory)} elsewhere in the program; lower it again"
            )
        if buffer.owner not in (None, owner):
            device = owner if buffer.owner == HOST else buffer.owner
            raise NotSupported(
                f"method {self._method!r}: {device} keeps the mutable buffer {name!r} on its device between runs, and a"
                " method that shares it reads it elsewhere; load with the option of that backend by which it stays in"
                " the host's memory, or lower the methods for that backend alone, or without share_mutable_buffers"
            )
        buffer.owner = owner
        self.own[name] = buffer
        return buffer

    def _new_buffer(self, initial: Array) -> StateBuffer:
        total = sum(buffer.memory.nbytes for buffer in self._known.values()) + initial.nbytes
        self._limits.require_state(self._method, total)
        memory = allocate(self._platform, initial.nbytes)[: initial.nbytes]
        array = memory.view(initial.dtype).reshape(initial.shape)
        np.copyto(array, initial)
        return StateBuffer(array, initial)
