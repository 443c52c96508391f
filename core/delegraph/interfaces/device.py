"""Memory of a device, which a backend's author offers, and tensors in it, which the backend is passed.

    class NpuMemory(DeviceAllocator):          # the four calls
        ...
    class NpuBackend(BackendInterface):
        def device_allocator(self, device): return self.memory        # one for each device that it runs on

A method whose delegates are for that device (their compile spec "target_device") has tensors there, in planned memory
from `allocate`; its `et_copy` instructions go through the two copies; the backend's `execute` gets `DeviceTensor`s.
An allocator may import what others have on the device, and tell others the address of what it has: neither copies.
ExecuTorch's `runtime/core/device_allocator.h` and `device_memory_buffer.h`.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np

from delegraph.errors import InvalidArgument, MemoryAllocationFailed, RuntimeFault, cause_of
from delegraph.program.devices import Device
from delegraph.program.strides import dense_strides

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delegraph.interfaces.dma_buf import DmaBuf
    from delegraph.interfaces.external_memory import ExternalTensor

__all__ = ["DeviceAllocator", "DeviceMemoryBuffer", "DeviceTensor"]


CUDA: Final = 2
"""DLPack's number for memory of a CUDA device (`dlpack.h`, kDLCUDA)."""

CUDA_MANAGED: Final = 13
"""DLPack's number for memory that CUDA devices and the CPU share (kDLCUDAManaged)."""


class DeviceAllocator(ABC):
    """The memory of one device. Offsets and lengths are in bytes; may be called from several threads."""

    dlpack_device_type: ClassVar[int] = CUDA
    """The kind of the device, as DLPack numbers them (`dlpack.h`, DLDeviceType; 12 is for anybody's own)."""

    dlpack_stream: ClassVar[int | None] = None
    """The queue of the device that reads what is imported, as `__dlpack__` numbers them; None: its default one."""

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

    def copy_device_to_device(
        self, target: Any, target_offset: int, source: Any, source_offset: int, nbytes: int
    ) -> None:
        """Copy within the device, between two memories that do not overlap. Done when it returns.

        As it stands here, by way of the CPU's memory.
        """
        content = np.empty(nbytes, np.uint8)
        self.copy_device_to_host(content, source, source_offset)
        self.copy_host_to_device(target, target_offset, content)

    def import_memory(self, source: ExternalTensor | DmaBuf) -> Any | None:
        """The caller's memory as what `allocate` would have given for it, from the first element of `source` on: dense,
        `source.nbytes` long, and never copied. None: the device cannot use it.

        `source` has the device that `dlpack_device_type` says, or does not say one, or is a `DmaBuf`, which lies within
        its buffer. What it says of its memory is a caller's word; refuse by a `RuntimeFault` what cannot be. The memory
        lives until `release_memory`, and is read alone where `source.read_only`.
        """
        return None

    def release_memory(self, memory: Any) -> None:
        """Let go of what `import_memory` gave: nothing refers to it any more. The memory itself is its owner's."""
        return None

    def pointer(self, memory: Any) -> int | None:
        """The address by which others on the device know `memory`; None: it has none, and nobody can import it."""
        return None


class DeviceMemoryBuffer:
    """`nbytes` of a device's memory. `memory` is the allocator's object for them: somebody's, or None: it is allocated,
    and freed when nothing refers to this. `read_only` says whether it is somebody's who lets others read it alone.

    Raises `MemoryAllocationFailed`.
    """

    def __init__(
        self,
        device: Device,
        allocator: DeviceAllocator,
        nbytes: int,
        memory: Any = None,
        *,
        read_only: bool = False,
    ) -> None:
        self.device = device
        self.allocator = allocator
        self.nbytes = nbytes
        self.read_only = read_only
        if memory is None:
            memory = _allocated(device, allocator, nbytes)
            weakref.finalize(self, allocator.deallocate, memory)
        self.memory = memory

    @classmethod
    def of_import(cls, device: Device, allocator: DeviceAllocator, source: ExternalTensor | DmaBuf) -> Self | None:
        """The memory of `source`, which lives as long as this; None if `allocator` cannot import it.

        Raises `InvalidArgument` with what `import_memory` raises, unless that is a `RuntimeFault`.
        """
        try:
            memory = allocator.import_memory(source)
        except RuntimeFault:
            raise
        except Exception as error:
            raise InvalidArgument(f"{device} did not import the caller's memory: {cause_of(error)}") from error
        if memory is None:
            return None
        buffer = cls(device, allocator, source.nbytes, memory, read_only=getattr(source, "read_only", False))
        weakref.finalize(buffer, _release, allocator, memory, source)
        return buffer

    def __len__(self) -> int:
        return self.nbytes

    def __repr__(self) -> str:
        return f"DeviceMemoryBuffer({self.device}, {self.nbytes:,} bytes)"


def _allocated(device: Device, allocator: DeviceAllocator, nbytes: int) -> Any:
    try:
        return allocator.allocate(nbytes)
    except RuntimeFault:
        raise
    except Exception as error:
        raise MemoryAllocationFailed(f"{device} did not give {nbytes:,} bytes: {cause_of(error)}") from error


def _release(allocator: DeviceAllocator, memory: Any, source: object) -> None:
    """Until here `source` keeps its owner alive."""
    allocator.release_memory(memory)


class DeviceTensor:
    """A tensor in a device's memory: its bytes, dense, begin at `offset` of `buffer`. `strides` are in bytes.

    A backend reads `buffer.memory`. Others get a copy of the content with `numpy()`, or the tensor where it lies,
    through DLPack or the CUDA Array Interface, if the allocator tells its address: `torch.from_dlpack(tensor)`.
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
        self.strides: tuple[int, ...] = dense_strides(shape, dtype.itemsize) if strides is None else tuple(strides)

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

    def external(self) -> ExternalTensor | None:
        """Where it lies, for others; None if its allocator tells no address."""
        allocator = self.buffer.allocator
        begin = allocator.pointer(self.buffer.memory)
        if begin is None:
            return None
        from delegraph.interfaces.external_memory import ExternalTensor

        device = (allocator.dlpack_device_type, self.device.index)
        pointer, read_only = begin + self.offset, self.buffer.read_only
        return ExternalTensor(pointer, self.shape, self.dtype, self.strides, read_only, device, None, self)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack's kind of its device, and which one of that."""
        return self.buffer.allocator.dlpack_device_type, self.device.index

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """A capsule of it, without a copy unless `copy` asks for one, or `dl_device` for the CPU's memory, (1, 0).

        What was computed is there on every `stream`. A view of a method's memory is overwritten by its next run, in the
        taker's hands too. Raises `BufferError` where it cannot be handed over: to another device, without an address,
        or read-only memory to a taker that cannot be told so.
        """
        from delegraph.interfaces.dlpack import to_dlpack
        from delegraph.interfaces.external_memory import ExternalTensor

        if dl_device == (1, 0) and self.__dlpack_device__() != dl_device and copy is not False:
            host = self.numpy()
            at = (host.ctypes.data, host.shape, host.dtype, host.strides, False, dl_device, None, host)
            return to_dlpack(ExternalTensor(*at), max_version)
        if dl_device not in (None, self.__dlpack_device__()):
            raise BufferError(f"the tensor lies on {self.device}, and is wanted on DLPack's device {dl_device}")
        external = (self.clone() if copy else self).external()
        if external is None:
            raise BufferError(f"the allocator of {self.device} tells no address of its memory; pass tensor.numpy()")
        return to_dlpack(external, max_version)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Where it lies, in the CUDA Array Interface, version 3; of tensors on CUDA devices alone."""
        external = self.external() if self.buffer.allocator.dlpack_device_type in (CUDA, CUDA_MANAGED) else None
        if external is None or self.dtype.kind not in "biufc":
            raise AttributeError(f"{self!r} has no __cuda_array_interface__")
        return {
            "version": 3,
            "data": (external.pointer if self.nbytes else 0, external.read_only),
            "shape": self.shape,
            "typestr": self.dtype.str,
            "strides": self.strides,
            "stream": None,
        }

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
        """Overwrite it; a tensor of another device comes by way of the CPU's memory. Raises `InvalidArgument`."""
        self._check_like(source)
        if self.buffer.read_only:
            raise InvalidArgument(f"{self!r} is in memory of the caller's that is read-only")
        if (
            isinstance(source, DeviceTensor)
            and source.buffer.allocator is self.buffer.allocator
            and source.buffer is not self.buffer  # where they may overlap
            and self.lies_as(source)
        ):
            there, here = source.buffer, self.buffer
            if self.nbytes:
                here.allocator.copy_device_to_device(here.memory, self.offset, there.memory, source.offset, self.nbytes)
            return
        array = source.numpy() if isinstance(source, DeviceTensor) else source
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

    def lies_as(self, other: DeviceTensor) -> bool:
        """Whether its elements lie in the order of those of `other`, a tensor of the same shape and dtype."""
        axes = zip(self.shape, self.strides, other.strides, strict=True)
        return self.nbytes == 0 or all(size == 1 or mine == others for size, mine, others in axes)

    def _as_in_memory(self, array: NDArray[np.generic]) -> NDArray[np.generic]:
        """A view of `array`, its dims from outer to inner as they lie on the device."""
        return array.transpose(sorted(range(self.ndim), key=lambda dim: -self.strides[dim]))

    def _check_like(self, array: NDArray[np.generic] | DeviceTensor) -> None:
        if array.shape != self.shape or array.dtype != self.dtype:
            raise InvalidArgument(
                f"{array.dtype}{list(array.shape)} cannot be copied to or from {self.dtype}{list(self.shape)}"
                f" on {self.device}"
            )

    def __repr__(self) -> str:
        return f"DeviceTensor({self.dtype}{list(self.shape)} on {self.device})"
