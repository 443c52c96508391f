"""Mutated files: each is refused with `InvalidProgram`, or it is a program that all later stages can take.

DELEGRAPH_FUZZ says how many mutations the long run makes (`make fuzz`); the seed of one that failed is in its message.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable

import pytest

from delegraph.errors import InvalidExternalData, InvalidProgram
from delegraph.program import (
    SerializationConfig,
    deserialize_flat_tensor,
    deserialize_program,
    serialize_flat_tensor,
    serialize_program,
    to_text,
)
from delegraph.program.flat_tensor import ExternalData, FlatTensor, TensorLayout
from delegraph.program.schema import Program, ScalarType

MANY = int(os.environ.get("DELEGRAPH_FUZZ", "100000"))
FEW = 3000
NUMBERS = (0, 1, 4, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1)

Mutation = Callable[[random.Random, bytearray], None]


def flip_a_bit(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def set_a_byte(rng: random.Random, data: bytearray) -> None:
    data[rng.randrange(len(data))] = rng.randrange(256)


def set_a_number(rng: random.Random, data: bytearray) -> None:
    """Offsets, counts and numbers stand at multiples of 2 or 4."""
    form = rng.choice(["<H", "<I", "<Q"])
    value = rng.choice([*NUMBERS, rng.randrange(len(data))]) % 2 ** (8 * struct.calcsize(form))
    struct.pack_into(form, data, rng.randrange((len(data) - 8) // 2) * 2, value)


def nudge_a_number(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange((len(data) - 4) // 4) * 4
    struct.pack_into(
        "<I", data, at, (struct.unpack_from("<I", data, at)[0] + rng.choice([-8, -4, -1, 1, 4, 8])) % 2**32
    )


def copy_a_piece(rng: random.Random, data: bytearray) -> None:
    size = rng.choice([1, 2, 4, 8, 16, 64])
    source, target = rng.randrange(len(data)), rng.randrange(len(data) - 64)
    piece = data[source : source + size]
    data[target : target + len(piece)] = piece


def remove_a_piece(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice([1, 4, 8, 64])]


def insert_a_piece(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data))
    data[at:at] = rng.randbytes(rng.choice([1, 4, 8, 64]))


def cut_off(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(80, len(data)) :]


MUTATIONS: tuple[Mutation, ...] = (
    flip_a_bit,
    set_a_byte,
    set_a_number,
    set_a_number,
    nudge_a_number,
    copy_a_piece,
    remove_a_piece,
    insert_a_piece,
    cut_off,
)


def mutated(rng: random.Random, source: bytes) -> bytes:
    data = bytearray(source)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        rng.choice(MUTATIONS)(rng, data)
        data += bytes(max(0, 160 - len(data)))  # so that there is something left to mutate
    return bytes(data)


def check_program(data: bytes) -> bool:
    """Whether `data` is taken; if so, it has a text form and can be written, and reading that gives the same bytes."""
    try:
        program = deserialize_program(data)
    except InvalidProgram:
        return False
    to_text(program)
    written = serialize_program(program)
    assert serialize_program(deserialize_program(written)) == written
    return True


def check_flat_tensor(data: bytes) -> bool:
    try:
        flat_tensor = deserialize_flat_tensor(data)
    except InvalidExternalData:
        return False
    written = serialize_flat_tensor(flat_tensor)
    assert serialize_flat_tensor(deserialize_flat_tensor(written)) == written
    return True


def fuzz(sources: list[bytes], check: Callable[[bytes], bool], count: int) -> None:
    taken = 0
    for seed in range(count):
        rng = random.Random(seed)
        data = mutated(rng, rng.choice(sources))
        try:
            taken += check(data)
        except Exception as error:
            raise AssertionError(f"mutation with seed {seed} raised {type(error).__name__}: {error}") from error
    assert 0.01 * count < taken < 0.9 * count  # the mutations neither always miss nor always hit


@pytest.fixture(scope="module")
def program_files(
    sample: Program, flatc_program: Callable[..., object], flatc_bytes: Callable[..., bytes]
) -> list[bytes]:
    """The sample with data in segments, inline, and as flatc's builder lays it out."""
    data = serialize_program(sample)
    inline = serialize_program(sample, SerializationConfig(16, 16, 16, extract_delegate_segments=False))
    return [data, inline, flatc_bytes(flatc_program(data), data[struct.unpack_from("<Q", data, 24)[0] :])]


@pytest.fixture(scope="module")
def flat_tensor_files() -> list[bytes]:
    layout = TensorLayout(ScalarType.FLOAT, (2, 3), (1, 0))
    named = {"w": ExternalData(bytes(24), layout), "v": ExternalData(bytes(24), layout), "blob": ExternalData(b"x")}
    return [serialize_flat_tensor(FlatTensor(named))]


def test_mutated_programs(program_files: list[bytes]) -> None:
    fuzz(program_files, check_program, FEW)


def test_mutated_flat_tensors(flat_tensor_files: list[bytes]) -> None:
    fuzz(flat_tensor_files, check_flat_tensor, FEW // 3)


@pytest.mark.fuzz
def test_many_mutated_programs(program_files: list[bytes]) -> None:
    fuzz(program_files, check_program, MANY)


@pytest.mark.fuzz
def test_many_mutated_flat_tensors(flat_tensor_files: list[bytes]) -> None:
    fuzz(flat_tensor_files, check_flat_tensor, MANY // 4)
