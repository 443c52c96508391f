"""Compile specs and plans -> devices: where a delegate runs, and where a planned memory and a tensor lie."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from delegraph.lazy_dataclass import dataclass
from delegraph.program.schema import CompileSpec, DeviceType, ExecutionPlan, NonConstBufferDevice, Tensor

__all__ = [
    "CPU",
    "TARGET_DEVICE_COMPILE_SPEC_KEY",
    "Device",
    "input_devices",
    "memory_devices",
    "tagged_device",
    "target_device",
    "tensor_device",
]

TARGET_DEVICE_COMPILE_SPEC_KEY: Final = "target_device"
"""The compile spec by which a partitioner says which device a delegate is for: b"cuda:0" (ExecuTorch
`exir/passes/propagate_device_pass.py`). Without one it takes and gives tensors in the CPU's memory."""


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """A device that tensors lie on: its type, of those that the file format knows, and which of that type."""

    type: DeviceType
    index: int = 0

    @classmethod
    def parse(cls, text: str) -> Device:
        """`"cuda:1"`, in any case; without a number, the first. Raises ValueError for any other text."""
        name, _, index = text.strip().lower().partition(":")
        types = {device.name.lower(): device for device in DeviceType}
        if name not in types:
            known = ", ".join(device.name for device in DeviceType)
            raise ValueError(f"Unknown device type '{name}'. Valid types: {known}")
        if not (index or "0").isdecimal() or int(index or 0) > _HIGHEST_INDEX:
            raise ValueError(f"{text!r}: the device's number is a whole number from 0 to {_HIGHEST_INDEX}")
        return cls(types[name], int(index or 0))

    def __str__(self) -> str:
        return f"{self.type.name.lower()}:{self.index}"


CPU: Final = Device(DeviceType.CPU)

_HIGHEST_INDEX: Final = 127
"""The file has a signed byte for it (`schema/program.fbs`)."""


def target_device(compile_specs: Iterable[CompileSpec]) -> Device:
    """The device that compile specs name; the CPU if they name none. Raises ValueError for a malformed name."""
    for spec in compile_specs:
        if spec.key == TARGET_DEVICE_COMPILE_SPEC_KEY:
            return Device.parse(spec.value.decode("utf-8", "replace"))
    return CPU


def memory_devices(buffers: Iterable[NonConstBufferDevice] | None) -> dict[int, Device]:
    """Memory id -> its device, for the memories of a plan (`non_const_buffer_device`) that are not the CPU's."""
    devices = {buffer.buffer_idx: Device(buffer.device_type, buffer.device_index) for buffer in buffers or ()}
    return {memory_id: device for memory_id, device in devices.items() if device.type is not DeviceType.CPU}


def tensor_device(tensor: Tensor, memories: Mapping[int, Device]) -> Device:
    """Where the bytes of `tensor` lie: where its planned memory does, one of `memory_devices`.

    The tensor's own tag counts where the caller gives the memory at run time. Beside planned memory of the CPU it is a
    remark alone: ExecuTorch tags a delegate's arguments even where it plans no memory on the device.
    """
    if tensor.allocation_info is not None:
        return memories.get(tensor.allocation_info.memory_id, CPU)
    return tagged_device(tensor) if tensor.data_buffer_idx == 0 else CPU


def input_devices(plan: ExecutionPlan) -> dict[int, Device]:
    """The devices of the inputs of `plan` that are not in the CPU's memory, by the value's index."""
    memories = memory_devices(plan.non_const_buffer_device)
    tensors = {index: plan.values[index] for index in plan.inputs}
    devices = {i: tensor_device(value, memories) for i, value in tensors.items() if isinstance(value, Tensor)}
    return {index: device for index, device in devices.items() if device != CPU}


def tagged_device(tensor: Tensor) -> Device:
    """The device that `tensor` itself names."""
    info = tensor.extra_tensor_info
    return CPU if info is None or info.device_type is DeviceType.CPU else Device(info.device_type, info.device_index)
