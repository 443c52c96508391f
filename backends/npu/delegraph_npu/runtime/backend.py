"""Blob -> machine -> outputs in planned memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from delegraph.errors import Cancelled
from delegraph.interfaces import (
    Argument,
    BackendExecutionContext,
    BackendInitContext,
    BackendInterface,
    Buffer,
    CallQueue,
    CompileSpec,
    Event,
    shared_data,
)
from delegraph_machines.arguments import arrays_of
from delegraph_npu.blob import BACKEND_ID, BLOB_VERSION, Blob, NamedWeights, unpack
from delegraph_npu.runtime.events import log_operators
from delegraph_npu.runtime.program import Machine, read_program

__all__ = ["NpuBackend"]


@dataclass(slots=True)
class NpuHandle:
    """A delegate: its machine, and whether it has been asked to stop."""

    machine: Machine
    cancelled: bool = False


class NpuBackend(BackendInterface):
    """Runs blobs of `delegraph_npu.aot`. Handles share nothing that a run changes."""

    blob_version = BLOB_VERSION

    def __init__(self) -> None:
        self._queue = CallQueue("npu")  # the one NPU that there is

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> NpuHandle:
        """Validate and decode a blob, and give it memories.

        Raises `DelegateInvalidCompatibility` for a blob that is damaged or whose commands are not sound.
        """
        blob = unpack(processed)
        program = read_program(blob, _weights(blob, context.named_data))
        return NpuHandle(Machine(program, context.platform.allocate))

    def fork(self, context: BackendInitContext, handle: NpuHandle) -> NpuHandle:
        """The same decoded commands in memories of its own."""
        return NpuHandle(Machine(handle.machine.program, context.platform.allocate))

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

    def num_outputs(self, handle: NpuHandle) -> int:
        """The number in the blob."""
        return len(handle.machine.outputs)


def _weights(blob: Blob, named_data: Mapping[str, Buffer]) -> Buffer:
    """The bytes of the region WEIGHTS."""
    if isinstance(blob.weights, NamedWeights):
        return shared_data(BACKEND_ID, named_data, blob.weights.key, blob.weights.nbytes)
    return blob.weights
