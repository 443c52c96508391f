"""A backend that adds and multiplies on devices whose memory the CPU cannot read: what the tests of devices share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot import ExecutorchBackendConfig, Lowered, graph_modules
from delegraph.aot.lower import lower
from delegraph.interfaces import (
    BackendDetails,
    BackendInterface,
    CompileSpec,
    DelegationSpec,
    Device,
    DeviceAllocator,
    DeviceTensor,
    Partitioner,
    PartitionResult,
    PreprocessResult,
)
from delegraph.plugins.registry import PluginRegistry
from delegraph.program import deserialize_program
from delegraph.program.schema import DelegateCall, ExecutionPlan, KernelCall
from delegraph.program.walk import instructions
from delegraph.runtime import KernelLibrary, Method, Runtime

BACKEND = "DeviceArithmetic"
_TAKEN = {torch.ops.aten.add.Tensor: np.add, torch.ops.aten.mul.Tensor: np.multiply}


class EachOnItsDevice(Partitioner):
    """Every addition and multiplication a delegate of its own, the i-th on `devices[i]` (the last for all others)."""

    def __init__(self, *devices: str, backend: str = BACKEND) -> None:
        self.devices = devices
        self.backend = backend

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        tags = {}
        graphs = [module.graph for _, module in graph_modules(exported_program.graph_module)]
        for i, node in enumerate(node for graph in graphs for node in graph.nodes if _function(node)):
            device = self.devices[min(i, len(self.devices) - 1)]
            node.meta["delegation_tag"] = f"tag{i}"
            tags[f"tag{i}"] = DelegationSpec(self.backend, [CompileSpec("target_device", device.encode())])
        return PartitionResult(exported_program, tags)


class DeviceArithmetic(BackendDetails):
    """The blob is the name of the NumPy function."""

    @staticmethod
    def preprocess(edge_program: ExportedProgram, compile_specs: list[CompileSpec]) -> PreprocessResult:
        (function,) = filter(None, map(_function, edge_program.graph.nodes))
        return PreprocessResult(function.__name__.encode())


class Memory(DeviceAllocator):
    """Bytes behind a number. Counts what is copied each way, and what is allocated."""

    def __init__(self) -> None:
        self.blocks: dict[int, bytearray] = {}
        self.allocated = self.to_device = self.to_host = 0

    def allocate(self, nbytes: int) -> int:
        self.allocated += 1
        self.blocks[self.allocated] = bytearray(nbytes)
        return self.allocated

    def deallocate(self, memory: Any) -> None:
        del self.blocks[memory]

    def copy_host_to_device(self, memory: Any, offset: int, source: Any) -> None:
        self.to_device += 1
        self.blocks[memory][offset : offset + source.nbytes] = source.tobytes()

    def copy_device_to_host(self, target: Any, memory: Any, offset: int) -> None:
        self.to_host += 1
        target[:] = np.frombuffer(self.blocks[memory], np.uint8, target.nbytes, offset)


class DeviceArithmeticRuntime(BackendInterface):
    """Computes where the tensors are; refuses tensors of another device."""

    def __init__(self, *devices: str) -> None:
        self.memories = {Device.parse(device): Memory() for device in devices}

    def device_allocator(self, device: Device) -> DeviceAllocator | None:
        return self.memories.get(device)

    def init(self, context: Any, processed: Any, compile_specs: Sequence[CompileSpec]) -> Any:
        return getattr(np, bytes(processed).decode()), Device.parse(compile_specs[0].value.decode())

    def execute(self, context: Any, handle: Any, args: Any) -> None:
        function, device = handle
        *inputs, out = args
        assert all(isinstance(one, DeviceTensor) and one.device == device for one in args), args
        out = context.resize(out, np.broadcast_shapes(*(one.shape for one in inputs)))
        first, second = self._array(inputs[0]), self._array(inputs[-1])
        np.copyto(self._array(out), function(first, second))

    def _array(self, tensor: DeviceTensor) -> Any:
        block = self.memories[tensor.device].blocks[tensor.buffer.memory]
        return np.ndarray(tensor.shape, tensor.dtype, block, tensor.offset, tensor.strides)


def registry() -> PluginRegistry:
    """The AOT half, registered."""
    plugins = PluginRegistry.discover(environ={})
    plugins.register("lowerings", BACKEND, DeviceArithmetic)
    return plugins


def lower_onto(
    devices: Sequence[str],
    model: nn.Module | Mapping[str, nn.Module],
    args: tuple[torch.Tensor, ...],
    dynamic_shapes: Any = None,
    **config: Any,
) -> Lowered:
    """`model`, its arithmetic on `devices`."""
    settings = ExecutorchBackendConfig(**{"check_kernels": False, **config})
    partitioner = EachOnItsDevice(*devices)
    inputs = dict.fromkeys(model, args) if isinstance(model, Mapping) else args
    return lower(
        model, inputs, backends=[partitioner], config=settings, plugins=registry(), dynamic_shapes=dynamic_shapes
    )


def plan_of(program: Lowered, method: int = 0) -> ExecutionPlan:
    """The method's record, as the file has it."""
    return deserialize_program(program.program.buffer).execution_plan[method]


def calls(plan: ExecutionPlan) -> list[str]:
    """What the method does: `h2d`, `d2h`, the device of a delegate, the name of an operator."""
    told = []
    for _, instruction in instructions(plan):
        if isinstance(instruction, DelegateCall):
            told.append(plan.delegates[instruction.delegate_index].compile_specs[0].value.decode())
        elif isinstance(instruction, KernelCall):
            name = plan.operators[instruction.op_index].name
            told.append(name.removeprefix("et_copy::_").removesuffix("_copy").removeprefix("aten::"))
    return told


def load(program: Lowered, backend: BackendInterface, method: str = "forward", **options: Any) -> Method:
    """A method of `program` on `backend`; it has kernels for `relu` and for copies."""
    runtime = Runtime(kernels=[KERNELS], backends={BACKEND: backend})
    return runtime.load_program(program.program.buffer).load_method(method, **options)


KERNELS = KernelLibrary("few")


@KERNELS.kernel("aten::relu.out")
def _relu(context: Any, self: Any, out: Any) -> None:
    np.maximum(self, 0, out=context.resize(out, self.shape))


@KERNELS.kernel("aten::copy_")
def _copy_(context: Any, self: Any, source: Any, non_blocking: bool) -> None:
    np.copyto(self, source)


@KERNELS.kernel("aten::clone.out")
def _clone(context: Any, self: Any, memory_format: Any, out: Any) -> None:
    np.copyto(context.resize(out, self.shape), self)


def _function(node: Node) -> Any:
    return _TAKEN.get(node.target)  # type: ignore[call-overload]
