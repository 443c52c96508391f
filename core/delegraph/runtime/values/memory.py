"""Buffer sizes -> memory: the planned buffers that a method's tensors lie in, and scratch memory for kernels.

ExecuTorch's `memory_manager.h` and `hierarchical_allocator.h`. `memory_id` counts from 1: buffer `n` of the plan is
`HierarchicalAllocator.buffers[n - 1]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import numpy as np

from delegraph.errors import DelegraphError, InvalidArgument, MemoryAllocationFailed, cause_of
from delegraph.interfaces.device import DeviceMemoryBuffer
from delegraph.interfaces.platform import ALIGNMENT, DEFAULT_PLATFORM, Platform
from delegraph.lazy_dataclass import dataclass
from delegraph.program.schema import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delegraph.interfaces.backend import BackendInterface

PLAN_ALIGNMENT: Final = 16
"""Bytes. Offsets in a plan are multiples of it (ExecuTorch `exir/tensor.py`), so memory has to begin at one."""


CallersBuffers: TypeAlias = "Mapping[int, Buffer | NDArray[np.generic]]"
"""Memory that a caller gives for some of a method's planned memories, by memory id."""


class TempAllocator(Protocol):
    """Scratch memory for kernels and delegates; `reset` is called after every instruction."""

    def allocate(self, nbytes: int) -> NDArray[np.uint8]:
        """`nbytes` of memory with any content, aligned to 64. Raises `MemoryAllocationFailed`."""

    def reset(self) -> None:
        """Take back everything that was given since the last reset."""


class MemoryAllocator:
    """Hands out one buffer from its start to its end; `reset` begins anew. Bounds what a method may use."""

    def __init__(self, buffer: Buffer | NDArray[np.generic]) -> None:
        self._buffer = _as_bytes(buffer)
        self._address = self._buffer.ctypes.data
        self._used = 0

    def allocate(self, nbytes: int) -> NDArray[np.uint8]:
        """The next `nbytes`, at an address that is a multiple of 64. Raises `MemoryAllocationFailed`."""
        # The address is what has to be aligned, and the caller's buffer may begin anywhere.
        start = self._used + -(self._address + self._used) % ALIGNMENT
        if start + nbytes > len(self._buffer):
            raise MemoryAllocationFailed(
                f"temporary memory of {len(self._buffer):,} bytes is too small: {self._used:,} are in use,"
                f" {nbytes:,} more were asked for"
            )
        self._used = start + nbytes
        return self._buffer[start : self._used]

    def reset(self) -> None:
        """Make the whole buffer free again."""
        self._used = 0


class HierarchicalAllocator:
    """The planned buffers of a method, one for each `memory_id` from 1 on.

    One that the plan has on a device may be that device's, a `DeviceMemoryBuffer`, or plain memory that simulates it.
    """

    def __init__(self, buffers: Sequence[Buffer | NDArray[np.generic] | DeviceMemoryBuffer]) -> None:
        self.buffers: tuple[NDArray[np.uint8] | DeviceMemoryBuffer, ...] = tuple(
            buffer if isinstance(buffer, DeviceMemoryBuffer) else _as_bytes(buffer) for buffer in buffers
        )

    @classmethod
    def of_sizes(cls, sizes: Sequence[int], platform: Platform = DEFAULT_PLATFORM) -> HierarchicalAllocator:
        """Fresh zeroed buffers of `sizes` bytes: a plan's `non_const_buffer_sizes[1:]`."""
        return cls([allocate(platform, size) for size in sizes])

    def require(self, sizes: Sequence[int]) -> None:
        """Raise `MemoryAllocationFailed` unless there is a buffer of at least each of `sizes` bytes."""
        available = [len(buffer) for buffer in self.buffers] + [0] * len(sizes)
        short = [
            f"memory_id {memory_id} needs {needed:,} bytes, given {have:,}"
            for memory_id, (needed, have) in enumerate(zip(sizes, available, strict=False), 1)
            if have < needed
        ]
        if short:
            raise MemoryAllocationFailed("planned memory is too small: " + "; ".join(short))


def callers_buffers(callers: CallersBuffers, sizes: Sequence[int], shared: int = 0) -> dict[int, NDArray[np.uint8]]:
    """The buffers that a caller gives for some of a plan's memories, zeroed as far as the plan uses them.

    `sizes` are the plan's `non_const_buffer_sizes[1:]`; `shared` is the memory of what methods share. Raises
    `InvalidArgument` and `MemoryAllocationFailed` for a buffer that does not fit.
    """
    buffers: dict[int, NDArray[np.uint8]] = {}
    for memory_id, buffer in callers.items():
        if memory_id not in range(1, len(sizes) + 1):
            raise InvalidArgument(f"memory is given for memory_id {memory_id!r}; the method has {_ids(sizes)}")
        if memory_id == shared:
            raise InvalidArgument(f"memory_id {memory_id} is what methods share: its memory is that of a SharedState")
        buffers[memory_id] = _callers(memory_id, buffer, sizes[memory_id - 1])
    # In the order of their addresses, two that overlap are neighbours, or one between them overlaps as well.
    spans = sorted((array.ctypes.data, array.ctypes.data + len(array), i) for i, array in buffers.items())
    for (_, end, lower), (start, _, upper) in pairwise(spans):
        if start < end:
            raise InvalidArgument(f"the buffers given for memory_id {lower} and {upper} overlap")
    # Last of all: an error leaves the caller's memory as it was.
    for buffer in buffers.values():
        buffer[:] = 0
    return buffers


def _callers(memory_id: int, source: Buffer | NDArray[np.generic], needed: int) -> NDArray[np.uint8]:
    try:
        buffer = _as_bytes(source)
    except (TypeError, ValueError, BufferError) as error:
        raise InvalidArgument(f"memory_id {memory_id}: {type(source).__name__} is not a buffer: {error}") from error
    if len(buffer) < needed:
        raise MemoryAllocationFailed(f"memory_id {memory_id} needs {needed:,} bytes, given {len(buffer):,}")
    if needed and buffer.ctypes.data % PLAN_ALIGNMENT:
        raise InvalidArgument(
            f"memory_id {memory_id}: the buffer begins at address {buffer.ctypes.data:#x}, which is not a multiple of"
            f" {PLAN_ALIGNMENT}; tensors have to"
        )
    return buffer[:needed]  # what lies behind stays the caller's


def _ids(sizes: Sequence[int]) -> str:
    return f"memories 1 to {len(sizes)}" if sizes else "no planned memory"


def allocate(platform: Platform, nbytes: int) -> NDArray[np.uint8]:
    """`nbytes` of writable memory from the platform, whose hook may be anybody's. Raises `MemoryAllocationFailed`."""
    try:
        memory = _as_bytes(platform.allocate(nbytes))
    except DelegraphError:
        raise
    except Exception as error:
        raise MemoryAllocationFailed(f"the platform's allocate({nbytes:,}) raised {cause_of(error)}") from error
    if len(memory) < nbytes:
        raise MemoryAllocationFailed(f"the platform's allocate({nbytes:,}) gave {len(memory):,} bytes")
    return memory


def host_memory(platform: Platform, backends: Mapping[str, BackendInterface], nbytes: int) -> NDArray[np.uint8]:
    """`nbytes` of zeroed memory of the CPU, which the first of `backends` to offer some can address as well.

    Raises `MemoryAllocationFailed`, with the backend's name where that is to blame.
    """
    for name, backend in backends.items():
        try:
            offer = backend.host_memory(nbytes) if nbytes else None
            memory = None if offer is None else _as_bytes(offer)
        except Exception as error:
            raise MemoryAllocationFailed(
                f"backend {name!r}: host_memory({nbytes:,}) raised {cause_of(error)}"
            ) from error
        if memory is None:
            continue
        if len(memory) < nbytes or memory.ctypes.data % ALIGNMENT:
            raise MemoryAllocationFailed(
                f"backend {name!r}: host_memory({nbytes:,}) gave {len(memory):,} bytes at {memory.ctypes.data:#x};"
                f" it has to give as many as it was asked for, at a multiple of {ALIGNMENT}, or None"
            )
        memory[:nbytes] = 0
        return memory[:nbytes]
    return allocate(platform, nbytes)


@dataclass(frozen=True, slots=True)
class MemoryManager:
    """The memory that one method may use. Without a `temp_allocator`, scratch memory comes from the heap."""

    planned_memory: HierarchicalAllocator
    temp_allocator: TempAllocator | None = None


def _as_bytes(buffer: Buffer | NDArray[np.generic]) -> NDArray[np.uint8]:
    array: NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)
    if not array.flags.writeable:
        raise MemoryAllocationFailed("memory given for planned buffers is read-only; give a bytearray or a NumPy array")
    return array
