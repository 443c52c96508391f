"""Memory of the devices that a backend offers: zeroed, it keeps what it is given, and is imported where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np

from delegraph.interfaces import Device, DeviceAllocator, DeviceMemoryBuffer, DeviceTensor
from delegraph.program.schema import DeviceType
from delegraph_testkit.bench import Bench
from delegraph_testkit.load_checks import backends_of
from delegraph_testkit.outcomes import Unclaimed

__all__ = ["device_memory_keeps_what_it_is_given"]


def device_memory_keeps_what_it_is_given(bench: Bench) -> None:
    """Memory of a device is zeroed, keeps what is copied there and within it, and is imported where it lies."""
    pairs = [(backend, device) for backend in backends_of(bench).values() for device in map(Device, DeviceType)]
    allocators = [backend.device_allocator(device) for backend, device in pairs]
    if not any(allocator is not None for allocator in allocators):
        raise Unclaimed("it offers no memory of a device: tensors lie in the CPU's")
    for (backend, device), allocator in zip(pairs, allocators, strict=True):
        if allocator is None:
            continue
        assert backend.device_allocator(device) is allocator, f"{device}: each device_allocator call gives another one"
        _keeps(device, allocator)
        _is_imported(device, allocator)


def _keeps(device: Device, allocator: DeviceAllocator) -> None:
    content = np.arange(24, dtype=np.float32).reshape(4, 6)
    block = DeviceMemoryBuffer(device, allocator, 256)
    _check(DeviceTensor((64,), np.dtype(np.int32), block), np.zeros(64, np.int32), "allocate does not zero its memory")
    source, copy = (DeviceTensor((4, 6), content.dtype, block, offset) for offset in (16, 128))
    source.copy_from(content)
    _check(source, content, "what is copied there is not what comes back")
    allocator.copy_device_to_device(block.memory, copy.offset, block.memory, source.offset, source.nbytes)
    _check(copy, content, "copy_device_to_device gives something else")
    _check(source, content, "copy_device_to_device writes over its source")
    source.copy_from(content * 2)
    _check(copy, content, "what is copied to one place shows in another")


def _is_imported(device: Device, allocator: DeviceAllocator) -> None:
    """An address that it tells, imported, is the same memory."""
    content = np.arange(1, 25, dtype=np.int16)
    tensor = DeviceTensor.from_numpy(content, device, allocator)
    external = tensor.external()
    buffer = None if external is None else DeviceMemoryBuffer.of_import(device, allocator, external)
    if buffer is None:
        return
    imported = DeviceTensor(tensor.shape, tensor.dtype, buffer)
    _check(imported, content, "import_memory shows something else than what lies at the address")
    tensor.copy_from(content * 3)
    _check(imported, content * 3, "import_memory copies: what its owner writes is not seen")


def _check(tensor: DeviceTensor, expected: Any, fault: str) -> None:
    assert np.array_equal(tensor.numpy(), expected), f"{tensor.device}: {fault}"
