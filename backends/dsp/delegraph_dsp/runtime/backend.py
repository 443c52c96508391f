"""Blob -> validated program -> outputs in planned memory, and an event for each operator with its estimated cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import Cancelled
from delegraph.interfaces import (
    Argument,
    BackendExecutionContext,
    BackendInitContext,
    Buffer,
    CallQueue,
    CompileSpec,
    Event,
    EventTracer,
)
from delegraph.lazy_dataclass import dataclass, replace
from delegraph_dsp.binary import unpack
from delegraph_dsp.device import Device
from delegraph_dsp.program import BACKEND_ID, BLOB_VERSION, Program
from delegraph_dsp.runtime.machine import Machine
from delegraph_dsp.runtime.timing import Cost, Timing, measure
from delegraph_dsp.runtime.validator import validate
from delegraph_machines.arguments import arrays_of
from delegraph_machines.values import MachineBackend, MachineOptions

if TYPE_CHECKING:
    from delegraph.interfaces import DelegateDescription

__all__ = ["DspBackend", "DspHandle"]


@dataclass(frozen=True, slots=True)
class DspHandle:
    """A loaded program, which all forks share, and a machine of its own. `timing` is the cost of a run on the
    device."""

    program: Program
    device: Device
    timing: Timing
    machine: Machine


@dataclass(frozen=True, slots=True)
class DspOptions(MachineOptions):
    """Options at load of one delegate."""

    backend_id: ClassVar[str] = BACKEND_ID


class DspBackend(MachineBackend):
    """Runs blobs of `delegraph_dsp.aot` on a simulated vector machine."""

    blob_version = BLOB_VERSION

    def __init__(self) -> None:
        super().__init__(DspOptions())
        self._queue = CallQueue("dsp")  # the one DSP that there is

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> DspHandle:
        """Read and validate the program. Raises `DelegateInvalidCompatibility` for one that must not run, and
        `InvalidArgument` for options that do not exist; see `MachineOptions`."""
        program = unpack(memoryview(processed), context.named_data)
        device = validate(program)
        return DspHandle(program, device, measure(program, device), Machine(program, self.tracer_of_values(context)))

    def fork(self, context: BackendInitContext, handle: DspHandle) -> DspHandle:
        """The same program on a machine of its own."""
        return replace(handle, machine=Machine(handle.program, self.tracer_of_values(context)))

    def execute(self, context: BackendExecutionContext, handle: DspHandle, args: Sequence[Argument]) -> None:
        """Run once, reading the inputs and writing the outputs in place; arrays that are not dense are copied."""
        scratch = context.allocate_temp((handle.program.regions[1].nbytes,), np.dtype(np.uint8))
        self._run(context.event_tracer, handle, args, scratch)

    def submits(self, handle: DspHandle) -> bool:
        """The host goes on while the DSP works."""
        return True

    def submit(self, context: BackendExecutionContext, handle: DspHandle, args: Sequence[Argument]) -> Event:
        """`execute`, behind what the DSP has to do already."""
        scratch = np.empty(handle.program.regions[1].nbytes, np.uint8)
        return self._queue.submit(partial(self._run, context.event_tracer, handle, args, scratch))

    def _run(
        self, tracer: EventTracer | None, handle: DspHandle, args: Sequence[Argument], scratch: NDArray[np.uint8]
    ) -> None:
        program = handle.program
        inputs, outputs = arrays_of(BACKEND_ID, args, program.inputs, program.outputs)
        arrays = [np.ascontiguousarray(array).reshape(array.shape) for array in (*inputs, *outputs)]
        regions = [np.frombuffer(program.constants, np.uint8), scratch, *map(_bytes, arrays)]
        start = 0 if tracer is None else tracer.now()
        if not handle.machine.run(regions):
            raise Cancelled(f"a delegate of {BACKEND_ID} was stopped between two commands")
        for out, result in zip(outputs, arrays[len(inputs) :], strict=True):
            if out is not result:
                np.copyto(out, result)
        if tracer is not None:
            report(tracer, start, handle)

    def cancel(self, handle: DspHandle, requested: bool) -> None:
        """Stop between two commands."""
        handle.machine.stopped = requested

    def describe(
        self, processed: Buffer, compile_specs: Sequence[CompileSpec], named_data: Mapping[str, Buffer]
    ) -> DelegateDescription:
        """The operators, their kernels, and the constants that each reads, as the transfers read them."""
        from delegraph_dsp.runtime.describing import described

        program = unpack(memoryview(processed), named_data)
        return described(program, validate(program), memoryview(processed).nbytes)

    def num_outputs(self, handle: DspHandle) -> int:
        """The number in the program."""
        return len(handle.program.outputs)


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


# ---- events -------------------------------------------------------------------------------------------------------


def report(tracer: EventTracer, start: int, handle: DspHandle) -> None:
    """An event for each operator, from `start` on in the device's own time, with its counters as JSON."""
    for number, (operator, cost) in enumerate(zip(handle.program.operators, handle.timing.costs, strict=True)):
        begin, end = (start + round(cycle * 1000 / handle.device.clock_mhz) for cycle in (cost.begin, cost.end))
        tracer.log_profiling(
            operator.target, begin, end, delegate_debug_id=number, metadata=json.dumps(counters(cost)).encode()
        )


def counters(cost: Cost) -> dict[str, float]:
    """The counters of an operator's event: cycles, bytes, and energy in picojoules."""
    return {
        "cycles": cost.end - cost.begin,
        "compute_cycles": cost.compute,
        "stall_cycles": cost.stall,
        "dma_cycles": cost.dma,
        "dma_nbytes": cost.dma_nbytes,
        "packets": cost.packets,
        "least_packets": cost.bound,
        "tcm_nbytes": cost.peak_tcm,
        "energy_pj": cost.energy.total,
    }
