"""The NPU's bytecode, little-endian: the one thing that both halves share.

    "ACME" | u16 inputs | u16 instructions | u16 outputs | instructions: u8 opcode, u16 a, u16 b | outputs: u16 register

Registers are numbered: the inputs, then the result of each instruction. A unary instruction reads `a` alone.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

BLOB_VERSION = 2
MAGIC = b"ACME"
_HEAD = struct.Struct("<4sHHH")
_INSTRUCTION = struct.Struct("<BHH")
_REGISTER = struct.Struct("<H")


class Opcode(IntEnum):
    """What the NPU can do."""

    ADD = 1
    MUL = 2
    RELU = 3


@dataclass(frozen=True, slots=True)
class Instruction:
    """One operation on two registers."""

    opcode: Opcode
    a: int
    b: int


@dataclass(frozen=True, slots=True)
class Bytecode:
    """A compiled partition."""

    inputs: int
    instructions: tuple[Instruction, ...]
    outputs: tuple[int, ...]

    def encode(self) -> bytes:
        """The blob."""
        head = _HEAD.pack(MAGIC, self.inputs, len(self.instructions), len(self.outputs))
        body = b"".join(_INSTRUCTION.pack(i.opcode, i.a, i.b) for i in self.instructions)
        return head + body + b"".join(map(_REGISTER.pack, self.outputs))


def decode(blob: bytes | bytearray | memoryview) -> Bytecode:
    """Read a blob. Raises `ValueError` unless it is whole and every register in it exists."""
    try:
        magic, inputs, instruction_count, output_count = _HEAD.unpack_from(blob)
        end = _HEAD.size + instruction_count * _INSTRUCTION.size
        if magic != MAGIC or len(blob) != end + output_count * _REGISTER.size:
            raise ValueError("its head or its length is wrong")
        records = _INSTRUCTION.iter_unpack(blob[_HEAD.size : end])
        instructions = tuple(Instruction(Opcode(opcode), a, b) for opcode, a, b in records)
        outputs = tuple(register for (register,) in _REGISTER.iter_unpack(blob[end:]))
    except (struct.error, ValueError) as error:
        raise ValueError(f"not ACME bytecode: {error}") from error
    written_before = [(max(i.a, i.b), inputs + position) for position, i in enumerate(instructions)]
    if any(read >= known for read, known in [*written_before, *((o, inputs + len(instructions)) for o in outputs)]):
        raise ValueError("not ACME bytecode: it reads a register that nothing has written")
    return Bytecode(inputs, instructions, outputs)
