"""A blob -> its commands, validated and decoded -> a machine with memories of its own that runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer
from delegraph.lazy_dataclass import dataclass
from delegraph_machines.fixed_point import Rounding
from delegraph_machines.hazards import Range
from delegraph_machines.values import with_logs
from delegraph_npu.blob import Blob, IoTensor
from delegraph_npu.command_stream import decode_at
from delegraph_npu.commands import (
    Block,
    Command,
    Computing,
    Conv,
    Depthwise,
    DmaStart,
    DmaWait,
    MatMul,
    Region,
    Stop,
)
from delegraph_npu.cost import Segment, schedule
from delegraph_npu.device import Device, read_device
from delegraph_npu.runtime.array import BoundConv, BoundDepthwise, BoundMatMul
from delegraph_npu.runtime.constants import constants_read
from delegraph_npu.runtime.memory import Memories
from delegraph_npu.runtime.output_stage import NUMPY_DTYPES
from delegraph_npu.runtime.validate import validate
from delegraph_npu.runtime.vector_unit import BoundVector

if TYPE_CHECKING:
    from delegraph.interfaces import EventTracer

__all__ = ["Machine", "Program", "read_program"]


class _Bindable(Protocol):
    """A computing command whose constants have been decoded, without memories."""

    def bind(self, memories: Memories) -> Callable[[], None]:
        """A function that runs the command once, in `memories`."""


_ENGINES: Final[Mapping[type[Any], Callable[..., _Bindable]]] = {
    Conv: BoundConv,
    Depthwise: BoundDepthwise,
    MatMul: BoundMatMul,
}
"""The classes of commands; all others are the vector unit's."""


@dataclass(frozen=True)
class Program:
    """The data that all delegates of one blob share. `constants` are WEIGHTS and TABLES; `decoded` are the executable
    commands, in the order in which they run."""

    blob: Blob
    device: Device
    constants: Mapping[Region, NDArray[np.uint8]]
    commands: tuple[Command, ...]
    decoded: tuple[_Bindable, ...]

    @property
    def executable(self) -> list[DmaStart | Computing]:
        """The commands of which `decoded` are the executable form."""
        return [command for command in self.commands if not isinstance(command, Stop | DmaWait)]

    @cached_property
    def segments(self) -> list[Segment]:
        """The time and the cost of each operator: the same in every run."""
        return schedule(self.commands, self.device)


def read_program(blob: Blob, weights: Buffer) -> Program:
    """Validate and decode `blob`, whose weights are the bytes `weights`.

    Raises `DelegateInvalidCompatibility` for a blob that is not sound, before any command of it runs.
    """
    device = read_device(blob.device, "the device in a blob of NpuBackend")
    for region, nbytes in ((Region.SRAM, blob.sram_nbytes), (Region.DRAM, blob.dram_nbytes)):
        there = device.memory(region).nbytes
        if nbytes > there:
            raise DelegateInvalidCompatibility(
                f"a blob of NpuBackend takes {nbytes} bytes of {region.name}; its device has {there}"
            )
    constants = {
        Region.WEIGHTS: np.frombuffer(weights, np.uint8),
        Region.TABLES: np.frombuffer(blob.tables, np.uint8),
    }
    sizes = {
        Region.SRAM: blob.sram_nbytes,
        Region.DRAM: blob.dram_nbytes,
        **{region: len(data) for region, data in constants.items()},
    }
    for tensor in blob.tensors:
        _check_tensor(tensor, sizes)
    placed = list(decode_at(blob.stream))
    validate(placed, sizes, len(blob.operators))
    commands = [command for _, command in placed]
    read = constants_read(commands, {region: data.data for region, data in constants.items()})
    rounding: Rounding = "double" if blob.rounding == "double" else "single"
    decoded = [
        _decoded(command, blocks, rounding)
        for command, blocks in zip(commands, read, strict=True)
        if not isinstance(command, Stop | DmaWait)
    ]
    return Program(blob, device, constants, tuple(commands), tuple(decoded))


def _check_tensor(tensor: IoTensor, sizes: Mapping[Region, int]) -> None:
    item = tensor.dtype.nbytes
    numbers = (tensor.offset, *tensor.shape, *tensor.strides)
    sound = min(numbers) >= 0 and not any(number % item for number in (tensor.offset, *tensor.strides))
    place = Range(tensor.region.name, tensor.offset, tensor.offset + tensor.span)
    if not sound or tensor.region not in (Region.SRAM, Region.DRAM) or place.end > sizes[tensor.region]:
        raise DelegateInvalidCompatibility(f"a tensor of a blob of NpuBackend lies in no memory: {tensor}")


def _decoded(command: DmaStart | Computing, constants: Mapping[Block, memoryview], rounding: Rounding) -> _Bindable:
    if isinstance(command, DmaStart):
        return _Transfer(command)
    return _ENGINES.get(type(command), BoundVector)(command, constants, rounding)


@dataclass(frozen=True, slots=True)
class _Transfer:
    """A transfer, done at once: `validate` has checked that nothing touches its bytes before the wait for it."""

    command: DmaStart

    def bind(self, memories: Memories) -> Callable[[], None]:
        command = self.command
        source, target = (
            np.ndarray(command.shape, np.uint8, memories[place.region].data, place.offset, (*strides, 1))
            for place, strides in (
                (command.source, command.source_strides),
                (command.target, command.target_strides),
            )
        )

        def run() -> None:
            target[...] = source

        return run


class Machine:
    """One delegate: memories, and the program's commands bound to them; a `tracer` is told each operator's value."""

    def __init__(
        self, program: Program, allocate: Callable[[int], NDArray[np.uint8]], tracer: EventTracer | None = None
    ) -> None:
        self.program = program
        memories = {
            Region.SRAM: allocate(program.blob.sram_nbytes),
            Region.DRAM: allocate(program.blob.dram_nbytes),
            **program.constants,
        }
        self.inputs = tuple(_view(tensor, memories) for tensor in program.blob.inputs)
        self.outputs = tuple(_view(tensor, memories) for tensor in program.blob.outputs)
        self.steps: Sequence[Callable[[], None]] = [decoded.bind(memories) for decoded in program.decoded]
        if tracer is not None:
            named = enumerate(zip(program.blob.operators, program.blob.values, strict=False))
            logs = {
                number: partial(tracer.log_value, name, _view(value, memories), delegate_debug_id=name)
                for number, (name, value) in named
                if value is not None
            }
            self.steps = with_logs(self.steps, [command.operator for command in program.executable], logs)


def _view(tensor: IoTensor, memories: Memories) -> NDArray[Any]:
    dtype = NUMPY_DTYPES[tensor.dtype]
    return np.ndarray(tensor.shape, dtype, memories[tensor.region].data, tensor.offset, tensor.strides)
