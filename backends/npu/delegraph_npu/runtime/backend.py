"""Blob -> machine -> outputs in planned memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from delegraph.errors import Cancelled
from delegraph.interfaces import (
    Argument,
    BackendExecutionContext,
    BackendInitContext,
    BlobStamp,
    Buffer,
    CallQueue,
    Compatibility,
    CompileSpec,
    Event,
    Verdict,
    shared_data,
)
from delegraph.lazy_dataclass import dataclass
from delegraph_machines.arguments import arrays_of
from delegraph_machines.values import MachineBackend, MachineOptions
from delegraph_npu.blob import BACKEND_ID, BLOB_VERSION, Blob, NamedWeights, unpack
from delegraph_npu.runtime.events import log_operators
from delegraph_npu.runtime.program import Machine, read_program

if TYPE_CHECKING:
    from delegraph.interfaces import DelegateDescription

__all__ = ["NpuBackend"]

DEVICE_VARIABLE: Final = "DELEGRAPH_NPU_DEVICE"


@dataclass(slots=True)
class NpuHandle:
    """A delegate: its machine, and whether it has been asked to stop."""

    machine: Machine
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class NpuOptions(MachineOptions):
    """Options at load of one delegate."""

    backend_id: ClassVar[str] = BACKEND_ID


class NpuBackend(MachineBackend):
    """Runs blobs of `delegraph_npu.aot`. Handles share nothing that a run changes."""

    blob_version = BLOB_VERSION

    def __init__(self) -> None:
        super().__init__(NpuOptions())
        self._queue = CallQueue("npu")  # the one NPU that there is
        self.device = os.environ.get(DEVICE_VARIABLE, "")
        """The name of the device that is there; "": whichever a blob is for, as this is a simulation."""

    def check(self, stamp: BlobStamp | None) -> Compatibility:
        """A blob for another device than the one that is there is refused."""
        compatibility = super().check(stamp)
        if compatibility.verdict is Verdict.OK and stamp and self.device and stamp.variant not in ("", self.device):
            return Compatibility(Verdict.REFUSE, f"it is for {stamp.variant}, and here is {self.device}")
        return compatibility

    def set_option(self, options: Mapping[str, bool | int | str]) -> None:
        """`device`: the name of the one that is there, in place of what the environment variable says."""
        super().set_option({key: value for key, value in options.items() if key != "device"})
        self.device = str(options.get("device", self.device))

    def get_option(self, keys: Sequence[str]) -> dict[str, bool | int | str]:
        """`device`."""
        own: dict[str, bool | int | str] = {"device": self.device} if "device" in keys else {}
        return super().get_option([key for key in keys if key != "device"]) | own

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> NpuHandle:
        """Validate and decode a blob, and give it memories.

        Raises `DelegateInvalidCompatibility` for a blob that is damaged or whose commands are not sound, and
        `InvalidArgument` for options that do not exist; see `MachineOptions`.
        """
        blob = unpack(processed)
        program = read_program(blob, _weights(blob, context.named_data))
        return NpuHandle(Machine(program, context.platform.allocate, self.tracer_of_values(context)))

    def fork(self, context: BackendInitContext, handle: NpuHandle) -> NpuHandle:
        """The same decoded commands in memories of its own."""
        return NpuHandle(Machine(handle.machine.program, context.platform.allocate, self.tracer_of_values(context)))

    def execute(self, context: BackendExecutionContext, handle: NpuHandle, args: Sequence[Argument]) -> None:
        """Copy the inputs in, run the stream, copy the outputs out."""
        machine, tracer = handle.machine, context.event_tracer
        start = 0 if tracer is None else tracer.now()
        inputs, outputs = arrays_of(BACKEND_ID, args, machine.inputs, machine.outputs)
        for place, array in zip(machine.inputs, inputs, strict=True):
            np.copyto(place, array)
        for step in machine.steps:
            if handle.cancelled:
                raise Cancelled("a delegate of NpuBackend was stopped between two commands")
            step()
        for place, array in zip(machine.outputs, outputs, strict=True):
            np.copyto(array, place)
        if tracer is not None:
            log_operators(machine.program, tracer, start)

    def submits(self, handle: NpuHandle) -> bool:
        """The host goes on while the NPU works."""
        return True

    def submit(self, context: BackendExecutionContext, handle: NpuHandle, args: Sequence[Argument]) -> Event:
        """`execute`, behind what the NPU has to do already."""
        return self._queue.submit(partial(self.execute, context, handle, args))

    def cancel(self, handle: NpuHandle, requested: bool) -> None:
        """The machine stops between two commands."""
        handle.cancelled = requested

    def describe(
        self, processed: Buffer, compile_specs: Sequence[CompileSpec], named_data: Mapping[str, Buffer]
    ) -> DelegateDescription:
        """The operators, and the constants that each reads, in the machine's own form."""
        from delegraph_npu.runtime.describing import described

        blob = unpack(processed)
        return described(read_program(blob, _weights(blob, named_data)))

    def num_outputs(self, handle: NpuHandle) -> int:
        """The number in the blob."""
        return len(handle.machine.outputs)


def _weights(blob: Blob, named_data: Mapping[str, Buffer]) -> Buffer:
    """The bytes of the region WEIGHTS."""
    if isinstance(blob.weights, NamedWeights):
        return shared_data(BACKEND_ID, named_data, blob.weights.key, blob.weights.nbytes)
    return blob.weights
