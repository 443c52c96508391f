"""What both halves know: a program for the device <-> the bytes of a blob. No torch.

A line of JSON, then the constants' elements as little-endian float32. Values are registers, numbered as they come.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

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
        arrays = {register: np.ascontiguousarray(array, "<f4") for register, array in self.constants.items()}
        shapes = [[register, list(array.shape)] for register, array in arrays.items()]
        head = {**vars(self), "constants": shapes}
        return b"\n".join([json.dumps(head).encode(), b"".join(array.tobytes() for array in arrays.values())])


def decode(blob: bytes) -> Program:
    """Read a blob, which may come from a stranger. Raises `ValueError` unless every register is written before use."""
    line, _, content = blob.partition(b"\n")
    try:
        head = json.loads(line)
        constants, offset = {}, 0
        for register, shape in head.pop("constants"):
            constants[register] = np.frombuffer(content, "<f4", prod(shape), offset).reshape(shape)
            offset += constants[register].nbytes
        program = Program(constants=constants, **head)
        _check(program)
    except (TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"its head is damaged: {error}") from error
    if offset != len(content):
        raise ValueError(f"{len(content)} bytes of constants, {offset} expected")
    return program


def _check(program: Program) -> None:
    written = {*program.inputs, *program.constants}
    for operation, reads, writes, factor in program.steps:
        if len(reads) != ARITY.get(operation) or not written.issuperset(reads) or not isinstance(factor, int | float):
            raise ValueError(f"a step {operation!r} that the device does not have")
        written.add(writes)
    if not written.issuperset(program.outputs):
        raise ValueError("an output that nothing computes")
