"""Where every byte of a `.pte` lies, and that reading gives back what was written without copying it."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from delegraph.errors import InvalidArgument, InvalidProgram
from delegraph.program import SerializationConfig, deserialize_program, serialize_program, write_program
from delegraph.program.schema import (
    BackendDelegate,
    Buffer,
    Chain,
    ExecutionPlan,
    Frame,
    FreeCall,
    NamedData,
    Operator,
    Program,
    ScalarType,
    Tensor,
)

PLAN = ExecutionPlan("forward", (), (), (), (Chain(()),))


def header(data: bytes) -> tuple[bytes, int, int, int, int]:
    """Magic, length, program size, segment base offset, segment data size."""
    return struct.unpack_from("<4sIQQQ", data, 8)  # type: ignore[return-value]


def with_blobs(*blobs: bytes) -> Program:
    delegates = tuple(BackendDelegate("B", index) for index in range(len(blobs)))
    return Program((replace(PLAN, delegates=delegates),), delegate_data=blobs)


def with_constants(*constants: bytes) -> Program:
    values = tuple(
        Tensor(ScalarType.BYTE, (len(data),), (0,), data_buffer_idx=index)
        for index, data in enumerate(constants, start=1)
    )
    return Program((replace(PLAN, values=values),), constants=(b"", *constants))


def test_reads_what_was_written(sample: Program) -> None:
    assert deserialize_program(serialize_program(sample)) == sample


def test_serializing_again_gives_the_same_bytes(sample: Program) -> None:
    data = serialize_program(sample)
    assert serialize_program(deserialize_program(data)) == data


def test_a_program_without_data_has_no_extended_header() -> None:
    data = serialize_program(Program((PLAN,)))
    assert data[4:8] == b"ET12"
    assert data[8:12] != b"eh00"
    assert struct.unpack_from("<I", data)[0] < len(data)
    assert deserialize_program(data) == Program((PLAN,))


def test_the_extended_header_says_where_the_segments_are() -> None:
    data = serialize_program(with_blobs(b"x" * 5))
    magic, length, program_size, base, data_size = header(data)
    assert (magic, length) == (b"eh00", 32)
    assert base == -(-program_size // 128) * 128
    assert not any(data[program_size:base])
    assert data_size == 5
    assert data[base:] == b"x" * 5


def test_constants_are_padded_to_16_but_for_the_last() -> None:
    data = serialize_program(with_constants(b"a" * 17, b"b" * 3))
    _, _, _, base, data_size = header(data)
    assert data[base:] == b"a" * 17 + bytes(15) + b"b" * 3
    assert data_size == 35


def test_constants_come_back_without_their_padding() -> None:
    program = with_constants(b"a" * 17, b"b" * 3)
    assert deserialize_program(serialize_program(program)).constants == (b"", b"a" * 17, b"b" * 3)


def test_a_constant_that_no_tensor_uses_reaches_to_the_next() -> None:
    program = replace(with_constants(b"a" * 17, b"b" * 3), execution_plan=(PLAN,))
    constants = deserialize_program(serialize_program(program)).constants
    assert constants[1:] == (b"a" * 17 + bytes(15), b"b" * 3)


def test_segments_are_aligned_and_in_executorch_order(sample: Program) -> None:
    data = serialize_program(sample)
    base = header(data)[3]
    # constants, mutable data, one blob, an empty named datum, another for two keys
    assert data[base : base + 33] == bytes(range(24)) + bytes(8) + b"x"
    assert data[base + 128 : base + 136] == bytes(8)
    assert data[base + 256 : base + 260] == b"blob"
    assert data[base + 384 :] == b"named"


def test_equal_blobs_share_a_segment() -> None:
    once = serialize_program(with_blobs(b"x" * 1000))
    twice = serialize_program(with_blobs(b"x" * 1000, b"x" * 1000, b"y" * 1000))
    assert header(once)[4] == 1000
    assert header(twice)[4] == 1024 + 1000
    plan = deserialize_program(twice).execution_plan[0]
    assert [delegate.processed for delegate in plan.delegates] == [0, 0, 1]


def test_named_data_of_equal_content_share_a_segment_aligned_for_all() -> None:
    named = {"a": NamedData(b"first"), "b": NamedData(b"data", 512), "c": NamedData(b"data", 3)}
    data = serialize_program(Program((PLAN,), named_data=named))
    _, _, _, base, data_size = header(data)
    assert data_size == 1536 + 4
    assert base % 1536 == 0  # or the alignment within the segments would not hold in the file
    read = deserialize_program(data).named_data
    assert {key: bytes(entry.data) for key, entry in read.items()} == {"a": b"first", "b": b"data", "c": b"data"}


def test_empty_blobs_stay_in_the_flatbuffer() -> None:
    data = serialize_program(with_blobs(b""))
    assert data[8:12] != b"eh00"
    assert deserialize_program(data).delegate_data == (b"",)


@pytest.mark.parametrize("alignment", [None, 16, 64, 4096])
def test_blobs_can_stay_in_the_flatbuffer_aligned(alignment: int | None) -> None:
    config = SerializationConfig(delegate_alignment=alignment, extract_delegate_segments=False)
    program = with_blobs(b"\xab" * 100, b"\xcd" * 100)
    data = serialize_program(program, config)
    assert data[8:12] != b"eh00"
    assert data.index(b"\xab" * 100) % (alignment or 16) == 0
    assert data.index(b"\xcd" * 100) % (alignment or 16) == 0
    assert deserialize_program(data) == program


def test_inline_blobs_are_aligned_after_an_extended_header_too() -> None:
    config = SerializationConfig(delegate_alignment=64, extract_delegate_segments=False)
    program = with_constants(b"c")
    plan = replace(program.execution_plan[0], delegates=(BackendDelegate("B", 0),))
    program = replace(program, execution_plan=(plan,), delegate_data=(b"\xab" * 100,))
    data = serialize_program(program, config)
    assert data[8:12] == b"eh00"
    assert data[8 + 32 : 8 + 64] == bytes(32)  # the header is padded to the largest alignment inside
    assert data.index(b"\xab" * 100) % 64 == 0
    assert deserialize_program(data) == program


def test_alignments_can_be_chosen() -> None:
    config = SerializationConfig(segment_alignment=4096, constant_tensor_alignment=64)
    data = serialize_program(with_constants(b"a", b"b"), config)
    _, _, _, base, data_size = header(data)
    assert base == 4096
    assert data_size == 65


@pytest.mark.parametrize("field", ["segment_alignment", "constant_tensor_alignment", "delegate_alignment"])
@pytest.mark.parametrize("value", [0, -16, 24])
def test_an_alignment_is_a_power_of_two(field: str, value: int) -> None:
    with pytest.raises(InvalidArgument, match=rf"SerializationConfig\.{field} is {value}; an alignment is a power of"):
        SerializationConfig(**{field: value})


def test_what_is_shared_stays_within_what_the_reader_allows() -> None:
    """A stack trace of which nothing differs is the most that a file says by reference."""
    frames = (Frame("f" * 128, 0, "n" * 128, "c" * 128),) * 20_000
    operators = (Operator("o" * 128, "v" * 128),) * 20_000
    chain = Chain((FreeCall(0),), stacktrace=(frames,))
    plan = replace(PLAN, values=(Tensor(ScalarType.BYTE, (), ()),), chains=(chain,), operators=operators)
    data = serialize_program(Program((plan,)))
    assert len(data) < 1_000_000
    assert deserialize_program(data) == Program((plan,))


def test_tables_beyond_two_gib_are_refused_before_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delegraph.program.flatbuffer.builder.MAX_SIZE", 1000)
    with pytest.raises(InvalidArgument, match=r"exceed 1000 bytes.*extract_delegate_segments=True"):
        serialize_program(with_blobs(bytes(1000)), SerializationConfig(extract_delegate_segments=False))


def test_views_of_other_elements_count_as_bytes() -> None:
    floats = memoryview(bytes(8)).cast("f")
    program = Program((replace(PLAN, values=(Tensor(ScalarType.FLOAT, (2,), (0,), 1),)),), constants=(b"", floats))
    assert deserialize_program(serialize_program(program)).constants[1] == bytes(8)


def test_writable_buffers_can_be_written() -> None:
    program = with_blobs(b"ab", b"ab", b"cd")
    program = replace(program, delegate_data=tuple(map(bytearray, program.delegate_data)))
    assert deserialize_program(serialize_program(program)).delegate_data == (b"ab", b"cd")


# ---- files -----------------------------------------------------------------------------------------


def test_write_program_writes_the_same_bytes(sample: Program, tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    path.write_bytes(b"old")
    write_program(sample, path)
    assert path.read_bytes() == serialize_program(sample)
    assert os.listdir(tmp_path) == ["m.pte"]


def test_an_invalid_program_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    path.write_bytes(b"old")
    with pytest.raises(InvalidProgram):
        write_program(Program((PLAN, PLAN)), path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["m.pte"]


def test_a_link_is_followed(sample: Program, tmp_path: Path) -> None:
    (tmp_path / "link.pte").symlink_to(tmp_path / "m.pte")
    write_program(sample, tmp_path / "link.pte")
    assert (tmp_path / "link.pte").is_symlink()
    assert (tmp_path / "m.pte").read_bytes() == serialize_program(sample)


def test_what_is_no_file_is_written_in_place(sample: Program, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_program(sample, pipe)
        assert os.read(reader, 1 << 16) == serialize_program(sample)
    finally:
        os.close(reader)
    assert os.listdir(tmp_path) == ["pipe"]


# ---- sources ---------------------------------------------------------------------------------------


def buffers(program: Program) -> Iterator[Buffer]:
    yield from program.constants[1:]
    yield from program.mutable_data[1:]
    yield from program.delegate_data
    yield from (entry.data for entry in program.named_data.values())


@pytest.mark.parametrize("inline", [False, True])
def test_data_are_read_only_views_into_the_source(sample: Program, inline: bool) -> None:
    source = serialize_program(sample, SerializationConfig(extract_delegate_segments=not inline))
    for buffer in buffers(deserialize_program(source)):
        assert isinstance(buffer, memoryview)
        assert buffer.readonly
        assert not buffer or buffer.obj is source


def test_a_writable_source_is_not_writable_through_the_program(sample: Program) -> None:
    program = deserialize_program(bytearray(serialize_program(sample)))
    assert program == sample
    assert all(memoryview(buffer).readonly for buffer in buffers(program))


def test_a_mapped_file_is_not_copied(sample: Program, tmp_path: Path) -> None:
    path = tmp_path / "m.pte"
    write_program(sample, path)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        program = deserialize_program(memoryview(mapping))
        assert program == sample
        assert all(buffer.obj is mapping for buffer in buffers(program) if isinstance(buffer, memoryview) and buffer)
        del program


class Loads:
    """A source that remembers what was loaded."""

    def __init__(self, data: bytes, missing: int = 0) -> None:
        self.data = data
        self.missing = missing
        self.loads: list[tuple[int, int]] = []

    def load(self, offset: int, size: int) -> bytes:
        self.loads.append((offset, size))
        return self.data[offset : offset + size - (self.missing if offset else 0)]

    def size(self) -> int:
        return len(self.data)


def test_a_source_is_asked_for_the_head_the_tables_and_each_segment(sample: Program) -> None:
    source = Loads(serialize_program(sample))
    assert deserialize_program(source) == sample
    _, _, program_size, base, _ = header(source.data)
    assert source.loads[:2] == [(0, 64), (0, program_size)]
    # "named" is loaded once for each of its two keys; the empty datum is not loaded
    assert source.loads[2:] == [(base, 33), (base + 128, 8), (base + 256, 4), (base + 384, 5), (base + 384, 5)]


def test_a_source_that_gives_too_little(sample: Program) -> None:
    source = Loads(serialize_program(sample), missing=3)
    with pytest.raises(
        InvalidProgram, match=r"the source gave 30 of the 33 bytes from byte \d+ on; was the file trunc"
    ):
        deserialize_program(source)
