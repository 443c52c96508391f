"""Plan + backends -> its planned memory, that on devices too; and the copies between there and the CPU's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from delegraph.errors import Internal, NotSupported
from delegraph.interfaces.device import DeviceAllocator, DeviceMemoryBuffer, DeviceTensor
from delegraph.interfaces.platform import Platform
from delegraph.program.devices import Device, memory_devices, target_device
from delegraph.program.schema import ExecutionPlan
from delegraph.runtime.values.memory import host_memory
from delegraph.runtime.values.values import Array, Shape

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from delegraph.interfaces.backend import BackendInterface

__all__ = ["allocator_on", "copy_across", "planned_buffers"]


def planned_buffers(
    plan: ExecutionPlan,
    platform: Platform,
    backends: Mapping[str, BackendInterface],
    callers: Mapping[int, NDArray[np.uint8]],
) -> list[NDArray[np.uint8] | DeviceMemoryBuffer]:
    """Zeroed memory for each memory id from 1 on: that which the first of `backends` to offer some gives the CPU and
    itself, otherwise the platform's; or of the device on which the plan has it. `callers` takes the place of the CPU's.

    `backends` are those of the plan's delegates. Raises `MemoryAllocationFailed`, and `NotSupported` for a device whose
    memory none of them offers.
    """
    devices = memory_devices(plan.non_const_buffer_device)
    allocators = {device: _allocator(plan, device, backends) for device in devices.values()}
    return [
        callers[memory_id]
        if memory_id in callers
        else DeviceMemoryBuffer(devices[memory_id], allocators[devices[memory_id]], size)
        if memory_id in devices
        else host_memory(platform, backends, size)
        for memory_id, size in enumerate(plan.non_const_buffer_sizes[1:], 1)
    ]


def _allocator(plan: ExecutionPlan, device: Device, backends: Mapping[str, BackendInterface]) -> DeviceAllocator:
    allocator = allocator_on(plan, device, backends)
    if allocator is None:
        asked = ", ".join(map(repr, _ids_on(plan, device))) or "no delegate runs there"
        raise NotSupported(
            f"{_where(plan, device)}, and none of the backends of its delegates there offers that memory (asked:"
            f" {asked})\n"
            "  what to do: install a release of the backend that has a device_allocator for it; give a MemoryManager"
            " with memory for each memory id (plain arrays simulate a device, if the backend takes them); or lower the"
            " model with enable_non_cpu_memory_planning=False, which leaves all tensors in the CPU's memory"
        )
    return allocator


def allocator_on(
    plan: ExecutionPlan, device: Device, backends: Mapping[str, BackendInterface]
) -> DeviceAllocator | None:
    """The allocator of the backends that run on `device`: it is the same, since they pass each other tensors. None if
    none of them offers one. Raises `NotSupported` where there are two."""
    offers = {name: _offer(name, backends[name], device) for name in _ids_on(plan, device)}
    allocators = [offer for offer in offers.values() if offer is not None]
    if any(offer is not allocators[0] for offer in allocators):
        names = " and ".join(repr(name) for name, offer in offers.items() if offer is not None)
        raise NotSupported(
            f"{_where(plan, device)}, for which {names} each have an allocator of their own, so that neither could read"
            " what the other wrote; lower the model for one of them, or for a device each"
        )
    return allocators[0] if allocators else None


def _ids_on(plan: ExecutionPlan, device: Device) -> list[str]:
    return sorted({delegate.id for delegate in plan.delegates if target_device(delegate.compile_specs) == device})


def _where(plan: ExecutionPlan, device: Device) -> str:
    return f"method {plan.name!r} has tensors in the memory of {device}"


def _offer(backend_id: str, backend: BackendInterface, device: Device) -> DeviceAllocator | None:
    offer: object = backend.device_allocator(device)
    if offer is not None and not isinstance(offer, DeviceAllocator):
        raise Internal(
            f"backend {backend_id!r}: its device_allocator returned {offer!r} for {device}; it has to return a"
            " delegraph.interfaces.DeviceAllocator or None"
        )
    return offer


def copy_across(resize: Callable[[Any, Shape], Any], source: Array | DeviceTensor, out: Any) -> None:
    """`et_copy::_h2d_copy.out` and `_d2h_copy.out`: `out`, at the shape of `source`, gets its content.

    Where the caller gave plain arrays for a device's memory, both are arrays.
    """
    out = resize(out, source.shape)
    if isinstance(out, DeviceTensor):
        out.copy_from(source)
    elif isinstance(source, DeviceTensor):
        source.copy_to(out)
    else:
        np.copyto(out, source)
