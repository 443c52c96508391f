"""What both halves know: a program for the device <-> the bytes of a blob. No torch.

Values are registers, numbered as they come; constants are float32. A weight that several programs of a file have lies
in it once, beside them, and goes by a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer, pack_blob, shared_data, unpack_blob

BLOB_VERSION = 1
"""Raise it when the half that runs can no longer read older blobs."""

PRECISIONS = ("float32", "float64")

ARITY = {"add": 2, "mul": 2, "relu": 1, "tanh": 1, "linear": 3}
"""What the device can do, and of how many registers."""


@dataclass
class Program:
    """A step is (operation, registers that it reads, register that it writes, factor of its last operand); a shared
    weight is (register, key, shape)."""

    inputs: list[int] = field(default_factory=list)
    constants: dict[int, Any] = field(default_factory=dict)
    shared: list[tuple[int, str, list[int]]] = field(default_factory=list)
    steps: list[tuple[str, list[int], int, float]] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)

    def encode(self) -> bytes:
        """The blob."""
        head = [self.inputs, list(self.constants), self.shared, self.steps, self.outputs]
        return pack_blob(head, self.constants.values())


def decode(blob: Buffer, named_data: Mapping[str, Buffer]) -> Program:
    """Read a blob, which may come from a stranger: every register has to be written before it is read."""
    head, arrays = unpack_blob(blob)
    try:
        inputs, registers, shared, steps, outputs = head
        constants = dict(zip(registers, arrays, strict=True))
        for register, key, shape in shared:
            weight = shared_data("SampleName", named_data, key, 4 * prod(shape))
            constants[register] = np.frombuffer(weight, np.float32).reshape(shape)
        program = Program(inputs, constants, shared, steps, outputs)
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
