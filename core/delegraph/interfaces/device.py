"""Memory of a device, which a backend's author offers, and tensors in it, which the backend is passed.

    class NpuMemory(DeviceAllocator):          # the four calls
        ...
    class NpuBackend(BackendInterface):
        def device_allocator(self, device): return self.memory        # one for each device that it runs on

A method whose delegates are for that device (their compile spec "target_device") has tensors there, in planned memory
from `allocate`; its `et_copy` instructions go through the two copies; the backend's `execute` gets `DeviceTensor`s.
ExecuTorch's `runtime/core/device_allocator.h` and `device_memory_buffer.h`.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import InvalidArgument, MemoryAllocationFailed, RuntimeFault, cause_of
from delegraph.program.devices import Device

__all__ = ["DeviceAllocator", "DeviceMemoryBuffer", "DeviceTensor"]


class DeviceAllocator(ABC):
    """The memory of one device. Offsets and lengths are in bytes; may be called from several threads."""

    @abstractmethod
    def allocate(self, nbytes: int) -> Any:
        """`nbytes` of zeroed memory, as whatever the device knows it by: a pointer, a handle, an array."""

    @abstractmethod
    def copy_host_to_device(self, memory: Any, offset: int, source: NDArray[np.uint8]) -> None:
        """Write all of `source` into `memory`, from `allocate`, from `offset` on. Done when it returns."""

    @abstractmethod
    def copy_device_to_host(self, target: NDArray[np.uint8], memory: Any, offset: int) -> None:
        """Fill all of `target` from `memory`, from `offset` on. Done when it returns."""

    def deallocate(self, memory: Any) -> None:
        """Take `memory` back: nothing refers to it any more."""
        return None


class DeviceMemoryBuffer:
    """`nbytes` of a device's memory, freed when nothing refers to them. `memory` is the allocator's object.

    Raises `MemoryAllocationFailed`.
    """

    def __init__(self, device: Device, allocator: DeviceAllocator, nbytes: int) -> None:
        self.device = device
        self.allocator = allocator
        self.nbytes = nbytes
        try:
            self.memory = allocator.allocate(nbytes)
        except RuntimeFault:
            raise
        except Exception as error:
            raise MemoryAllocationFailed(f"{device} did not give {nbytes:,} bytes: {cause_of(error)}") from error
        weakref.finalize(self, allocator.deallocate, self.memory)

    def __len__(self) -> int:
        return self.nbytes

    def __repr__(self) -> str:
        return f"DeviceMemoryBuffer({self.device}, {self.nbytes:,} bytes)"


class DeviceTensor:
    """A tensor in a device's memory: its bytes, dense, begin at `offset` of `buffer`. `strides` are in bytes.

    A backend reads `buffer.memory`; everybody else gets a copy of the content with `numpy()`.
    """

    __slots__ = ("buffer", "dtype", "offset", "shape", "strides")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
        buffer: DeviceMemoryBuffer,
        offset: int = 0,
        strides: Sequence[int] | None = None,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.buffer = buffer
        self.offset = offset
        self.strides: tuple[int, ...] = np.empty(shape, dtype).strides if strides is None else tuple(strides)

    @classmethod
    def from_numpy(cls, array: NDArray[np.generic], device: Device, allocator: DeviceAllocator) -> Self:
        """`array`, C-contiguous, in memory of its own on `device`, for methods that take their inputs there."""
        tensor = cls(array.shape, array.dtype, DeviceMemoryBuffer(device, allocator, array.nbytes))
        tensor.copy_from(array)
        return tensor

    @property
    def device(self) -> Device:
        """Where it lies."""
        return self.buffer.device

    @property
    def ndim(self) -> int:
        """How many dims it has."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return prod(self.shape) * self.dtype.itemsize

    def numpy(self) -> NDArray[Any]:
        """Its content, in the CPU's memory."""
        array: NDArray[Any] = np.ndarray(self.shape, self.dtype, np.empty(self.nbytes, np.uint8), 0, self.strides)
        self.copy_to(array)
        return array

    def clone(self) -> DeviceTensor:
        """The same in memory of its own on the device."""
        buffer = DeviceMemoryBuffer(self.device, self.buffer.allocator, self.nbytes)
        copy = DeviceTensor(self.shape, self.dtype, buffer, 0, self.strides)
        copy.copy_from(self)
        return copy

    def copy_from(self, source: NDArray[np.generic] | DeviceTensor) -> None:
        """Overwrite it; an array on a device comes by way of the CPU's memory. Raises `InvalidArgument`."""
        array = source.numpy() if isinstance(source, DeviceTensor) else source
        self._check_like(array)
        if self.nbytes:
            dense = np.ascontiguousarray(self._as_in_memory(array)).reshape(-1).view(np.uint8)
            self.buffer.allocator.copy_host_to_device(self.buffer.memory, self.offset, dense)

    def copy_to(self, target: NDArray[np.generic]) -> None:
        """Write its content into `target`. Raises `InvalidArgument`."""
        self._check_like(target)
        if not self.nbytes:
            return
        ordered = self._as_in_memory(target)
        dense = ordered if ordered.flags.c_contiguous else np.empty(ordered.shape, self.dtype)
        self.buffer.allocator.copy_device_to_host(dense.reshape(-1).view(np.uint8), self.buffer.memory, self.offset)
        if dense is not ordered:
            np.copyto(ordered, dense)

    def _as_in_memory(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """A view of `array`, its dims from outer to inner as they lie on the device."""
        return array.transpose(sorted(range(self.ndim), key=lambda dim: -self.strides[dim]))

    def _check_like(self, array: NDArray[np.generic]) -> None:
        if array.shape != self.shape or array.dtype != self.dtype:
            raise InvalidArgument(
                f"{array.dtype}{list(array.shape)} cannot be copied to or from {self.dtype}{list(self.shape)}"
                f" on {self.device}"
            )

    def __repr__(self) -> str:
        return f"DeviceTensor({self.dtype}{list(self.shape)} on {self.device})"
