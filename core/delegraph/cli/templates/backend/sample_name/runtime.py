"""The half that runs: NumPy stands for the device. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from delegraph.errors import DelegateInvalidCompatibility, InvalidState
from delegraph.interfaces import (
    Argument,
    BackendExecutionContext,
    BackendInitContext,
    BackendInterface,
    Buffer,
    CallQueue,
    CompileSpec,
    DelegateDescription,
    Event,
)
from sample_name.blob import FORMAT, PRECISIONS, Constant, Program, Step, decode

COMPUTE: Mapping[str, Callable[..., Any]] = {
    "add": lambda factor, a, b: a + factor * b,
    "mul": lambda factor, a, b: a * b,
    "relu": lambda factor, x: np.maximum(x, 0),
    "tanh": lambda factor, x: np.tanh(x),
    "linear": lambda factor, x, weight, bias: x @ weight.T + bias,
}


class Delegate(NamedTuple):
    """A loaded blob: what `execute` gets as its handle."""

    program: Program
    constants: Mapping[int, Any]
    dtype: Any
    check_finite: bool


def packed(context: BackendInitContext, constants: Mapping[int, Any], dtype: Any) -> dict[int, Any]:
    """The constants as the device wants them. Where the user asked for a cache, that is done once on a machine."""
    names = {register: f"{register}.npy" for register in constants}

    def save(folder: Path) -> None:
        for register, constant in constants.items():
            np.save(folder / names[register], constant.astype(dtype))

    options = f"{dtype}, {[(register, constant.shape) for register, constant in constants.items()]}"
    folder = context.cache.kept(save, driver="sample-name 1", blob=constants.values(), options=options)
    if folder is None:
        return {register: constant.astype(dtype) for register, constant in constants.items()}
    return {register: np.load(folder / name, mmap_mode="r") for register, name in names.items()}


class SampleNameBackend(BackendInterface):
    """Behind the backend id `SampleName`."""

    blob_version = FORMAT.version

    def __init__(self) -> None:
        # One device, which does one thing after the other. If it has memory of its own, or reads only some of the
        # host's: `device_allocator`, `host_memory` (Delegraph's docs, "Memory of your device"). If there are blobs for
        # several revisions: `check(stamp)`, which refuses a `stamp.variant` that is for another.
        self.queue = CallQueue("SampleName")

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> Delegate:
        """Options at load, `backend_options={"sample_name": {"check_finite": True}}`, are in `runtime_specs`."""
        precision = next((p for p in PRECISIONS if CompileSpec("precision", p.encode()) in compile_specs), None)
        if precision is None:
            raise DelegateInvalidCompatibility(f"its precision is none of {', '.join(PRECISIONS)}")
        check_finite = bool(context.runtime_specs.get("check_finite", False))
        program, constants = decode(processed, context.named_data)
        return Delegate(program, packed(context, constants, np.dtype(precision)), np.dtype(precision), check_finite)

    def num_outputs(self, handle: Delegate) -> int:
        return len(handle.program.outputs)

    def execute(self, context: BackendExecutionContext, handle: Delegate, args: Sequence[Argument]) -> None:
        """Inputs first, then outputs, which are filled in place."""
        program, constants, dtype, check_finite = handle
        known = (*constants.items(), *zip(program.inputs, args, strict=False))
        values: dict[int, Any] = {register: np.asarray(x, dtype) for register, x in known}
        for step in program.steps:
            values[step.writes] = COMPUTE[step.operation](dtype.type(step.factor), *(values[r] for r in step.reads))
        outputs: list[Any] = list(args[len(program.inputs) :])
        for register, out in zip(program.outputs, outputs, strict=True):
            if check_finite and not np.isfinite(values[register]).all():
                raise InvalidState("a result is not finite, and check_finite was asked for")
            context.resize(out, values[register].shape)[...] = values[register]

    def describe(self, processed: Buffer, compile_specs: Any, named_data: Mapping[str, Buffer]) -> DelegateDescription:
        """The content of a blob, as `delegraph inspect` shows it."""
        program, _ = decode(processed, named_data)
        return DelegateDescription(tuple(map(Step.node, program.steps)), tuple(map(Constant.weight, program.constants)))

    def submits(self, handle: Delegate) -> bool:
        """The host goes on while the device works. Leave these two out if yours keeps the host waiting."""
        return True

    def submit(self, context: BackendExecutionContext, handle: Delegate, args: Sequence[Argument]) -> Event:
        """A thread stands for the device's own queue."""
        return self.queue.submit(partial(self.execute, context, handle, args))
