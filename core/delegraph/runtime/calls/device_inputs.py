"""An argument for an input on a device -> a tensor there: the caller's own memory where the device can use it.

a DeviceTensor of the allocator's       as it is
what lies there, in others' words       imported: DLPack, the CUDA Array Interface, a DMA-buf
anything else                           an array, to be copied there
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces.device import CUDA, CUDA_MANAGED, DeviceAllocator, DeviceMemoryBuffer, DeviceTensor
from delegraph.interfaces.dma_buf import DmaBuf
from delegraph.interfaces.external_memory import ExternalTensor, read_cuda_array_interface
from delegraph.lazy_dataclass import dataclass
from delegraph.program.devices import Device
from delegraph.program.schema import ExecutionPlan, Tensor
from delegraph.runtime.resolution.delegates import Backends
from delegraph.runtime.values.device_memory import allocator_on
from delegraph.runtime.values.memory import HierarchicalAllocator
from delegraph.runtime.values.tensors import is_torch_tensor
from delegraph.runtime.values.values import Array

__all__ = ["Place", "input_places"]


@dataclass(frozen=True, slots=True)
class Place:
    """A device, and its memory as the method's backends know it."""

    device: Device
    allocator: DeviceAllocator

    def bring(self, value: object, check: Callable[[object], Array]) -> Array:
        """`value` as a tensor there without a copy, or what `check` makes of it.

        Raises as `check` does for what does not fit, and `InvalidArgument` for memory that cannot be used as it lies.
        """
        if isinstance(value, DeviceTensor) and value.buffer.allocator is self.allocator:
            return check(value)
        source = self._source(value)
        if source is None:
            return check(value)
        check(np.broadcast_to(np.empty((), source.dtype), source.shape))
        fault = _fault(source)
        if not fault:
            buffer = DeviceMemoryBuffer.of_import(self.device, self.allocator, source)
            if buffer is not None:
                return cast("Array", DeviceTensor(source.shape, source.dtype, buffer, 0, source.strides))
            fault = "that the backend does not import; ask its authors for import_memory in its DeviceAllocator"
        if isinstance(value, DeviceTensor | DmaBuf):  # which can go through the CPU's memory
            return check(value)
        raise InvalidArgument(
            f"the {type(value).__name__} is on {self.device}, in memory {fault}; or copy it to the CPU's memory"
        )

    def copied(self, tensor: Array, strides: tuple[int, ...]) -> Array:
        """`tensor` there, in memory of its own, with `strides` in bytes. Raises `MemoryAllocationFailed`."""
        buffer = DeviceMemoryBuffer(self.device, self.allocator, tensor.nbytes)
        copy = DeviceTensor(tensor.shape, tensor.dtype, buffer, 0, strides)
        copy.copy_from(tensor)
        return cast("Array", copy)

    def _source(self, value: Any) -> ExternalTensor | DmaBuf | None:
        """The record of `value`, if that lies on the device or can be imported there; None if not."""
        if isinstance(value, np.ndarray | np.generic):
            return None
        if isinstance(value, DmaBuf):
            value.require_inside()
            return value
        here = (self.allocator.dlpack_device_type, self.device.index)
        if isinstance(value, DeviceTensor):
            value = value.external()
        if isinstance(value, ExternalTensor):
            return value if value.device in (None, here) else None
        if hasattr(value, "__dlpack_device__") and hasattr(value, "__dlpack__"):
            if tuple(map(int, value.__dlpack_device__())) != here:
                return None
            from delegraph.interfaces.dlpack import read_dlpack

            return read_dlpack(value.detach() if is_torch_tensor(value) else value, self.allocator.dlpack_stream)
        if here[0] in (CUDA, CUDA_MANAGED) and hasattr(value, "__cuda_array_interface__"):
            return read_cuda_array_interface(value)
        return None


def input_places(
    plan: ExecutionPlan, devices: Mapping[int, Device], planned: HierarchicalAllocator, backends: Backends
) -> dict[int, Place]:
    """The places of the inputs of `plan` that are on `devices`, by the value's index. Those are not among them that lie
    in plain memory which simulates a device. Raises `NotSupported` for a device of two allocators."""
    places = {}
    for index, device in devices.items():
        record = plan.values[index]
        assert isinstance(record, Tensor)
        if record.allocation_info is None:
            allocator = allocator_on(plan, device, backends)
        else:
            buffer = planned.buffers[record.allocation_info.memory_id - 1]
            allocator = buffer.allocator if isinstance(buffer, DeviceMemoryBuffer) else None
        if allocator is not None:
            places[index] = Place(device, allocator)
    return places


def _fault(source: ExternalTensor | DmaBuf) -> str:
    """Why its bytes cannot be read as they lie, "" if they can: dense, in whatever order of dims."""
    step = source.dtype.itemsize
    axes = zip(source.shape, source.strides or (), strict=True)
    for size, stride in sorted((axis for axis in axes if axis[0] != 1), key=lambda axis: axis[1]):
        if stride != step and source.nbytes:
            return f"with gaps between its elements (its strides are {source.strides} bytes); give a dense tensor"
        step *= size
    return "" if source.dtype.isnative else "in another order of bytes; give it in the machine's own"
