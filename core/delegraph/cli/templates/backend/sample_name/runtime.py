"""The half that runs: NumPy stands for the device. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from delegraph.errors import DelegateInvalidCompatibility, InvalidState
from delegraph.interfaces import (
    Argument,
    BackendExecutionContext,
    BackendInitContext,
    BackendInterface,
    Buffer,
    CompileSpec,
)
from sample_name.blob import BLOB_VERSION, PRECISIONS, Program, decode

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
    dtype: Any
    check_finite: bool


class SampleNameBackend(BackendInterface):
    """Behind the backend id `SampleName`."""

    blob_version = BLOB_VERSION

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> Delegate:
        """Options at load, `backend_options={"sample_name": {"check_finite": True}}`, are in `runtime_specs`."""
        precision = next((p for p in PRECISIONS if CompileSpec("precision", p.encode()) in compile_specs), None)
        if precision is None:
            raise DelegateInvalidCompatibility(f"its precision is none of {', '.join(PRECISIONS)}")
        program = decode(processed, context.named_data)
        return Delegate(program, np.dtype(precision), bool(context.runtime_specs.get("check_finite", False)))

    def num_outputs(self, handle: Delegate) -> int:
        return len(handle.program.outputs)

    def execute(self, context: BackendExecutionContext, handle: Delegate, args: Sequence[Argument]) -> None:
        """Inputs first, then outputs, which are filled in place."""
        program, dtype, check_finite = handle
        values: dict[int, Any] = {register: np.asarray(array, dtype) for register, array in program.constants.items()}
        values |= {register: np.asarray(x, dtype) for register, x in zip(program.inputs, args, strict=False)}
        for operation, reads, writes, factor in program.steps:
            values[writes] = COMPUTE[operation](dtype.type(factor), *(values[register] for register in reads))
        outputs: list[Any] = list(args[len(program.inputs) :])
        for register, out in zip(program.outputs, outputs, strict=True):
            if check_finite and not np.isfinite(values[register]).all():
                raise InvalidState("a result is not finite, and check_finite was asked for")
            context.resize(out, values[register].shape)[...] = values[register]
