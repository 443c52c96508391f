"""Known to both halves: a program for the device <-> the bytes of a blob. No torch.

Values are registers, numbered as they come; constants are float32, each a section of the blob, called by its register.
A weight that several programs of a file have lies in it once, beside them, and goes by a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from delegraph.interfaces import BlobFormat, Buffer, DelegateNode, DelegateWeight, Size, read_record, shared_data

BACKEND_ID = "SampleName"
FORMAT = BlobFormat(BACKEND_ID, "sample-name", versions=(1,))
"""Add a version when what follows changes, and take out those that the half that runs can no longer read."""

PRECISIONS = ("float32", "float64")

ARITY = {"add": 2, "mul": 2, "relu": 1, "tanh": 1, "linear": 3}
"""The operations of the device, and of how many registers each is."""


@dataclass
class Constant:
    """With a key it lies in the program's named data."""

    register: int
    shape: tuple[Size, ...]
    key: str

    def weight(self) -> DelegateWeight:
        """For tools, as it is stored."""
        return DelegateWeight(str(self.register), "float32", self.shape, 4 * prod(self.shape), self.key or None)


@dataclass
class Step:
    """An operation on registers, the last of which is multiplied by `factor`, into another."""

    operation: str
    reads: list[int]
    writes: int
    factor: float

    def node(self) -> DelegateNode:
        """For tools, by the id that it has in the other half's `handles`."""
        return DelegateNode(str(self.writes), self.operation, tuple(map(str, self.reads)), debug_id=self.writes)


@dataclass
class Program:
    """The header of a blob."""

    inputs: list[int]
    constants: list[Constant]
    steps: list[Step]
    outputs: list[int]


def decode(processed: Buffer, named: Mapping[str, Buffer]) -> tuple[Program, dict[int, Any]]:
    """A program and its constants. It may come from a stranger: every register has to be written before it is read."""
    blob, arrays = FORMAT.unpack(processed), {}
    with FORMAT.reading():
        program = read_record(Program, blob.header)
        _check(program)
        for c in program.constants:
            data = shared_data(BACKEND_ID, named, c.key, 4 * prod(c.shape)) if c.key else blob.read(str(c.register))
            arrays[c.register] = np.frombuffer(data, np.float32).reshape(c.shape)
    return program, arrays


def _check(program: Program) -> None:
    written = {*program.inputs, *(constant.register for constant in program.constants)}
    for step in program.steps:
        if len(step.reads) != ARITY.get(step.operation) or not written.issuperset(step.reads):
            raise ValueError(f"a step {step.operation!r} that the device does not have")
        written.add(step.writes)
    if not written.issuperset(program.outputs):
        raise ValueError("an output that nothing computes")
