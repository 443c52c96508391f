"""What both halves know: a program for the device <-> the bytes of a blob. No torch.

Values are registers, numbered as they come; constants are float32.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer, pack_blob, unpack_blob

BLOB_VERSION = 1
"""Raise it when the half that runs can no longer read older blobs."""

PRECISIONS = ("float32", "float64")

ARITY = {"add": 2, "mul": 2, "relu": 1, "tanh": 1, "linear": 3}
"""What the device can do, and of how many registers."""


@dataclass
class Program:
    """A step is (operation, registers that it reads, register that it writes, factor of its last operand)."""

    inputs: list[int] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    steps: list[tuple[str, list[int], int, float]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def encode(self) -> bytes:
        """The blob."""
        head = [self.inputs, list(self.constants), self.steps, self.outputs]
        return pack_blob(head, self.constants.values())


def decode(blob: Buffer) -> Program:
    """Read a blob, which may come from a stranger: every register has to be written before it is read."""
    head, arrays = unpack_blob(blob)
    try:
        inputs, registers, steps, outputs = head
        program = Program(inputs, dict(zip(registers, arrays, strict=True)), steps, outputs)
        _check(program)
    except (TypeError, ValueError, AttributeError) as error:
        raise DelegateInvalidCompatibility(f"not a program of SampleName's: {error}") from error
    return program


def _check(program: Program) -> None:
    written = {*program.inputs, *program.constants}
    for operation, reads, writes, factor in program.steps:
        if len(reads) != ARITY.get(operation) or not written.issuperset(reads) or not isinstance(factor, int | float):
            raise ValueError(f"a step {operation!r} that the device does not have")
        written.add(writes)
    if not written.issuperset(program.outputs):
        raise ValueError("an output that nothing computes")
