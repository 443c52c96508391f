"""The contexts through which kernels and delegates of a method ask the runtime for memory and data."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from delegraph.runtime.values.memory import TempAllocator
from delegraph.runtime.values.values import Array, ValueTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delegraph.runtime.execution.tracing import EventTracer

_T = TypeVar("_T", bound=np.generic)


class MethodContext:
    """The `KernelContext`, `BindContext` and `BackendExecutionContext` of one loaded method."""

    def __init__(
        self,
        method_name: str,
        values: ValueTable,
        temp_allocator: TempAllocator | None = None,
        event_tracer: EventTracer | None = None,
    ) -> None:
        self.method_name = method_name
        self.event_tracer = event_tracer
        self._values = values
        self._temp_allocator = temp_allocator
        self._workspace = Workspace()

    def over(self, values: ValueTable) -> MethodContext:
        """The same for calls that are bound to `values`."""
        context = MethodContext(self.method_name, values, self._temp_allocator, self.event_tracer)
        context._workspace = self._workspace
        return context

    def resize(self, out: NDArray[Any], shape: Sequence[int]) -> NDArray[Any]:
        """`out` at its new `shape`, over the same planned memory. Raises `InvalidArgument`."""
        return self._values.resize(out, shape)

    def upper_bound(self, argument: Array) -> tuple[int, ...] | None:
        """The largest shape that `argument` gets; None if it always has its own."""
        return self._values.upper_bound(argument)

    def allocate_temp(self, shape: tuple[int, ...], dtype: np.dtype[_T]) -> NDArray[_T]:
        """Uninitialised scratch memory, valid until the instruction ends. Raises `MemoryAllocationFailed`."""
        if self._temp_allocator is None:
            return np.empty(shape, dtype)
        dtype = np.dtype(dtype)
        return np.ndarray(shape, dtype, self._temp_allocator.allocate(prod(shape) * dtype.itemsize))

    def is_constant(self, array: Array) -> bool:
        """Whether the array's content can never change: constants are the only read-only arrays."""
        return not array.flags.writeable

    def workspace(self, shape: tuple[int, ...], dtype: np.dtype[_T]) -> NDArray[_T]:
        """For `bind`: scratch memory for the bound call, shared with the method's other instructions."""
        return self._workspace.allocate(shape, np.dtype(dtype))

    def end_binding(self) -> None:
        """The next instruction is bound from now on: it may use the same workspace again."""
        self._workspace.reset()


class Workspace:
    """Scratch memory that the bound instructions of a method share, since only one of them runs at a time."""

    def __init__(self) -> None:
        self._block = np.empty(0, np.uint8)
        self._used = 0

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[_T]) -> NDArray[_T]:
        """An array over memory that no other allocation since the last `reset` has."""
        start = -(-self._used // 64) * 64
        nbytes = prod(shape) * dtype.itemsize
        if start + nbytes > len(self._block):
            # Calls that are bound already keep the old block. Doubling bounds the waste by the largest one.
            self._block = np.empty(max(nbytes, 2 * len(self._block)), np.uint8)
            start = 0
        self._used = start + nbytes
        return np.ndarray(shape, dtype, self._block, start)

    def reset(self) -> None:
        """Make all of it free for the next instruction."""
        self._used = 0
