"""Runs the NPU's bytecode, with NumPy in the place of the silicon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from acme_npu.bytecode import BLOB_VERSION, Bytecode, Opcode, decode
from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import (
    Argument,
    BackendExecutionContext,
    BackendInitContext,
    BackendInterface,
    BlobStamp,
    Buffer,
    Compatibility,
    CompileSpec,
    Verdict,
)


class AcmeBackend(BackendInterface):
    """The runtime half behind the backend id `AcmeNpu`."""

    def check(self, stamp: BlobStamp | None) -> Compatibility:
        if stamp is None:
            return Compatibility(Verdict.REFUSE, "a blob without a stamp may be anything")
        if stamp.blob_version < BLOB_VERSION:
            return Compatibility(Verdict.RECOMPILE, f"bytecode {stamp.blob_version} is older than {BLOB_VERSION}")
        if stamp.blob_version > BLOB_VERSION:
            return Compatibility(Verdict.REFUSE, f"bytecode {stamp.blob_version} is newer than {BLOB_VERSION}")
        return Compatibility(Verdict.OK)

    def init(self, context: BackendInitContext, processed: Buffer, compile_specs: Sequence[CompileSpec]) -> Bytecode:
        try:
            return decode(processed)
        except ValueError as error:
            raise DelegateInvalidCompatibility(str(error)) from error

    def execute(self, context: BackendExecutionContext, handle: Bytecode, args: Sequence[Argument]) -> None:
        registers: list[Any] = list(args[: handle.inputs])
        for instruction in handle.instructions:
            a, b = registers[instruction.a], registers[instruction.b]
            registers.append(_COMPUTE[instruction.opcode](a, b))
        outputs: list[Any] = list(args[handle.inputs :])
        for register, out in zip(handle.outputs, outputs, strict=True):
            np.copyto(out, registers[register])


_COMPUTE: Mapping[Opcode, Callable[[Any, Any], Any]] = {
    Opcode.ADD: np.add,
    Opcode.MUL: np.multiply,
    Opcode.RELU: lambda a, _: np.maximum(a, 0),
}
