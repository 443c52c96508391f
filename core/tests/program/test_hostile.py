"""Files made to break a reader: each is refused with `InvalidProgram`, which says where, and costs next to nothing."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from core.tests.program.flatc import program_generated as flatc

from delegraph.errors import InvalidProgram
from delegraph.program import deserialize_program, serialize_program
from delegraph.program._generated import program_tables as tables
from delegraph.program.files.header import read_head
from delegraph.program.flatbuffer.builder import Table, Tables, build, numbers, rows
from delegraph.program.flatbuffer.reader import FlatBufferReader
from delegraph.program.schema import Program


def refuse(data: bytes, message: str) -> None:
    with pytest.raises(InvalidProgram, match=message):
        deserialize_program(data)


def vector(*described: Table) -> Tables:
    return Tables(lambda table: table, described)


def bare(root: Table) -> bytearray:
    """A file without an extended header."""
    return build(bytes(4) + b"ET12", root)


def program_table(**fields: Any) -> Table:
    return tables.PROGRAM, tuple(fields.get(name, 0 if name == "version" else None) for name in tables.PROGRAM.names)


def plan_table(*values: Table, **fields: Any) -> Table:
    chain = (tables.CHAIN, (None, None, vector(), None))
    fields = {"name": "f", "values": vector(*values), "chains": vector(chain), **fields}
    fields.setdefault("non_const_buffer_sizes", numbers("q", (0,)))
    return tables.EXECUTION_PLAN, tuple(fields.get(name) for name in tables.EXECUTION_PLAN.names)


def method_file(*values: Table, **fields: Any) -> bytearray:
    """A file with one method of these values, and otherwise nothing but `fields`."""
    return bare(program_table(execution_plan=vector(plan_table(*values, **fields))))


# ---- the head --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"not a \.pte: bytes 4 to 8 are b'', not b'ET12'"),
        (b"\0" * 7, r"not a \.pte"),
        (b"\0\0\0\0ET13" + bytes(64), r"bytes 4 to 8 are b'ET13', not b'ET12'; was the file made by another version"),
        (b"PK\3\4" + bytes(64), r"not a \.pte"),
        (b"\0\0\0\0ET12eh00", r"the file ends within its extended header, after 12 bytes; was it truncated\?"),
        (b"\0\0\0\0ET12", r"byte 0: the vtable of a Program has 0 bytes"),
        (b"\4\0\0\0ET12", r"byte 4: the vtable of a Program lies before the file"),
        (b"\xff\xff\xff\xffET12", r"byte 4294967295: a Program table lies outside the 8 bytes there are"),
    ],
)
def test_what_is_no_program(data: bytes, message: str) -> None:
    refuse(data, message)


@pytest.mark.parametrize(
    ("offset", "form", "value", "message"),
    [
        (12, "<I", 23, r"the extended header has 23 bytes, fewer than 24; the file is damaged"),
        (16, "<Q", 0, r"the flatbuffer has 0 bytes in a file of \d+"),
        (16, "<Q", 2**63, r"the flatbuffer has 9223372036854775808 bytes in a file of \d+; was the file truncated\?"),
        (24, "<Q", 64, r"lets the segments begin at byte 64, within the flatbuffer of \d+ bytes"),
        (24, "<Q", 2**64 - 1, r"the segments end at byte 18446744073709552004 in a file of \d+ bytes; was the file tr"),
        (24, "<Q", 0, r"segments\[\d\] ends at byte \d+ of 0 bytes of segment data"),
        (32, "<Q", 2**40, r"the segments end at byte 109951\d+ in a file of \d+ bytes"),
        (
            32,
            "<Q",
            100,
            r"segments\[\d\] ends at byte \d+ of 100 bytes of segment data; the file is damaged, or its end",
        ),
    ],
)
def test_a_header_that_lies(sample: Program, offset: int, form: str, value: int, message: str) -> None:
    data = bytearray(serialize_program(sample))
    struct.pack_into(form, data, offset, value)
    refuse(bytes(data), message)


def test_a_program_cut_to_its_header() -> None:
    with pytest.raises(InvalidProgram, match=r"the flatbuffer has 4096 bytes in a file of 64; was the file truncated"):
        read_head(struct.pack("<4x4s4sIQQQ24x", b"ET12", b"eh00", 32, 4096, 0, 0), 64)


def test_every_truncation_is_refused(sample: Program) -> None:
    data = serialize_program(sample)
    for size in range(len(data)):
        with pytest.raises(InvalidProgram):
            deserialize_program(data[:size])


def test_every_truncation_of_a_bare_flatbuffer_is_refused() -> None:
    data = bytes(method_file((tables.EVALUE, (6, (tables.STRING, ("x",))))))
    deserialize_program(data)
    for size in range(len(data)):
        with pytest.raises(InvalidProgram):
            deserialize_program(data[:size])


# ---- tables, vectors and strings -------------------------------------------------------------------


def program_vtable(slots: tuple[int, ...], body: bytes) -> bytes:
    """A file whose root table has these slots in its vtable and this body."""
    vtable = struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), 4 + len(body), *slots)
    return struct.pack("<I4s", 8 + len(vtable), b"ET12") + vtable + struct.pack("<i", len(vtable)) + body


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (struct.pack("<I4siHH", 8, b"ET12", -4, 3, 4), r"byte 8: the vtable of a Program has 3 bytes"),
        (struct.pack("<I4siHH", 8, b"ET12", -(2**31), 3, 4), r"byte 8: a Program table lies outside"),
        (struct.pack("<I4siHH", 8, b"ET12", 2**31 - 1, 3, 4), r"byte 8: the vtable of a Program lies before the file"),
        (struct.pack("<I4siHH", 8, b"ET12", -4, 100, 4), r"byte 8: a Program table lies outside"),
        (program_vtable((4, 6), bytes(8)), r"byte 16: fields of a Program overlap"),
        (program_vtable((0, 2), bytes(8)), r"byte 16: fields of a Program overlap"),
        (program_vtable((0, 9000), bytes(8)), r"byte 16: a Program table lies outside the 28 bytes there are"),
        (program_vtable((0, 4), bytes(8)), r"byte 16: Program\.execution_plan refers to itself"),
        (program_vtable((0, 4), b"\xff\xff\xff\x7f"), r"byte 2147483667: a vector lies outside the 24 bytes there are"),
        (program_vtable((0, 4), struct.pack("<II", 4, 2**32 - 1)), r"a vector of 4294967295 elements is longer than"),
        (program_vtable((0, 4), struct.pack("<III", 4, 1, 2**31)), r"a ExecutionPlan table lies outside"),
    ],
)
def test_broken_tables(data: bytes, message: str) -> None:
    refuse(data, message)


def test_a_string_without_its_end() -> None:
    data = method_file(name="unmistakable")
    data[data.index(b"unmistakable") + 12] = 1
    refuse(bytes(data), r"byte \d+: a string does not end with a NUL")


def test_a_string_that_is_not_utf8() -> None:
    data = method_file(name="unmistakable")
    data[data.index(b"unmistakable")] = 0xFF
    refuse(bytes(data), r"byte \d+: a string is not UTF-8")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ((tables.EVALUE, (12, (tables.NULL, ()))), r"an EValue of union code 12 has no value that this version knows"),
        ((tables.EVALUE, (255, (tables.NULL, ()))), r"an EValue of union code 255 has no value"),
        ((tables.EVALUE, (0, (tables.NULL, ()))), r"an EValue of union code 0 has no value"),
        ((tables.EVALUE, (2, None)), r"an EValue of union code 2 has no value"),
        (
            (tables.EVALUE, (5, (tables.TENSOR, (30, *[0, None, None, False, 0, None, 0, 0, None])))),
            r"ScalarType has no",
        ),
        ((tables.EVALUE, (5, (tables.TENSOR, (-1, *[0, None, None, False, 0, None, 0, 0, None])))), r"no code -1"),
        (
            (tables.EVALUE, (5, (tables.TENSOR, (6, *[0, None, None, False, 0, None, 1, 0, None])))),
            r"Layout has no",
        ),
        (
            (tables.EVALUE, (5, (tables.TENSOR, (6, *[0, None, None, False, 0, None, 0, 3, None])))),
            r"TensorShapeDynamism",
        ),
    ],
)
def test_codes_that_mean_nothing(value: Table, message: str) -> None:
    refuse(bytes(method_file(value)), rf"byte \d+: .*{message}")


@pytest.mark.parametrize(
    ("instruction", "message"),
    [
        ((tables.INSTRUCTION, (6, (tables.NULL, ()))), r"an Instruction of union code 6 has no value that this"),
        ((tables.INSTRUCTION, (0, (tables.NULL, ()))), r"an Instruction of union code 0 has no value"),
        ((tables.INSTRUCTION, (1, None)), r"an Instruction of union code 1 has no value"),
    ],
)
def test_instructions_that_mean_nothing(instruction: Table, message: str) -> None:
    chain = (tables.CHAIN, (None, None, vector(instruction), None))
    refuse(bytes(method_file(chains=vector(chain))), rf"byte \d+: {message}")


def test_a_delegate_without_data() -> None:
    data = method_file(delegates=vector((tables.BACKEND_DELEGATE, ("B", None, None))))
    refuse(bytes(data), r"byte \d+: a BackendDelegate has no processed")


# ---- segments --------------------------------------------------------------------------------------

Change = Callable[[flatc.ProgramT], None]


def set_segment(index: int, offset: int, size: int) -> Change:
    def change(program: flatc.ProgramT) -> None:
        program.segments[index] = flatc.DataSegmentT(offset, size)

    return change


def set_field(owner: Callable[[flatc.ProgramT], Any], field: str, value: Any) -> Change:
    return lambda program: setattr(owner(program), field, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_segment(1, 32, 8), r"segments\[1\] begins at byte 32, within segments\[0\]"),
        (set_segment(1, 0, 389), r"segments\[1\] begins at byte 0, within segments\[0\]"),
        (set_segment(2, 2**64 - 1, 2**64 - 1), r"segments\[2\] ends at byte 36893488147419103230 of 389 bytes of segm"),
        (set_segment(4, 384, 6), r"segments\[4\] ends at byte 390 of 389 bytes of segment data"),
        (
            set_segment(0, 0, 31),
            r"constant_segment\.offsets\[2\] is 32, beyond the next offset or the segment's end, 31",
        ),
        (
            set_field(lambda p: p.constantSegment, "segmentIndex", 9),
            r"constant_segment\.segment_index is 9; the file has 5 segments",
        ),
        (
            set_field(lambda p: p.constantSegment, "offsets", [0, 16, 8]),
            r"constant_segment\.offsets\[1\] is 16, beyond the next offset or the segment's end, 8",
        ),
        (
            set_field(lambda p: p.constantSegment, "offsets", [0, 0, 2**64 - 1]),
            r"constant_segment\.offsets\[2\] is 1844674407370955",
        ),
        (
            set_field(lambda p: p.constantSegment, "offsets", [0, 20, 32]),
            r"constants\[1\] has 12 bytes, the tensor needs 24",
        ),
        (set_field(lambda p: p.constantSegment, "offsets", [0]), r"data_buffer_idx: is 1, but there are 1 constants"),
        (
            set_field(lambda p: p.mutableDataSegments[0], "segmentIndex", 7),
            r"mutable_data_segments\[0\]\.segment_index is 7; the file has 5 segments",
        ),
        (
            set_field(lambda p: p.mutableDataSegments[0], "offsets", [0, 9]),
            r"mutable_data_segments\[0\]\.offsets\[1\] is 9, beyond",
        ),
        (
            set_field(lambda p: p, "mutableDataSegments", [flatc.SubsegmentOffsetsT(1, [0, 0])] * 2),
            r"mutable_data_segments has 2 entries; runtimes read one only",
        ),
        (
            set_field(lambda p: p.namedData[1], "segmentIndex", 5),
            r"named_data\[1\]\.segment_index is 5; the file has 5 segments",
        ),
        (
            set_field(lambda p: p.namedData[2], "key", "k"),
            r"named_data\[2\]\.key is 'k', which an earlier entry has too",
        ),
        (set_field(lambda p: p.namedData[0], "key", None), r"named_data\[''\]: is empty"),
        (
            set_field(lambda p: p.executionPlan[0].delegates[0].processed, "index", 5),
            r"a delegate's processed\.index is 5; the file has 5 segments",
        ),
        (
            set_field(lambda p: p.executionPlan[0].delegates[1].processed, "index", 1),
            r"a delegate's data have location 0 and index 1; the program has 1 inline blobs",
        ),
        (
            set_field(lambda p: p.executionPlan[0].delegates[1].processed, "location", 2),
            r"a delegate's data have location 2 and index 0",
        ),
        (
            set_field(lambda p: p.executionPlan[0].nonConstBufferDevice[0], "deviceType", 9),
            r"byte \d+: DeviceType has no code 9",
        ),
        (set_field(lambda p: p.executionPlan[0], "name", None), r"execution_plan\[0\]\.name: is empty"),
        (
            set_field(lambda p: p.executionPlan[0], "nonConstBufferSizes", None),
            r"execution_plan\[0\]\.non_const_buffer_sizes: is \(\)",
        ),
        (
            set_field(lambda p: p.executionPlan[0].values[0].val, "sizes", [2**31 - 1] * 2),
            r"values\[0\]\.sizes: is \(2147483647, 2147483647\), 18446744056529682436 bytes, more",
        ),
        (
            set_field(lambda p: p.executionPlan[0].values[0].val, "sizes", [-1] * 2),
            r"values\[0\]\.sizes\[0\]: is -1, not within",
        ),
    ],
)
def test_segments_and_fields_that_lie(
    sample: Program,
    flatc_program: Callable[[bytes], flatc.ProgramT],
    flatc_bytes: Callable[..., bytes],
    change: Change,
    message: str,
) -> None:
    data = serialize_program(sample)
    program = flatc_program(data)
    change(program)
    refuse(flatc_bytes(program, data[struct.unpack_from("<Q", data, 24)[0] :]), message)


def test_segments_without_a_header() -> None:
    root = program_table(execution_plan=vector(plan_table()), segments=rows(tables.DATA_SEGMENT, [(0, 0), (0, 8)]))
    refuse(bytes(bare(root)), r"segments\[1\] ends at byte 8 of 0 bytes of segment data")


# ---- little files that claim to be large -----------------------------------------------------------


def point_all_at(data: bytearray, vector: int, target: int) -> None:
    """Let every entry of the vector of tables at `vector` refer to the table at `target`."""
    count = struct.unpack_from("<I", data, vector)[0]
    for at in range(vector + 4, vector + 4 + 4 * count, 4):
        struct.pack_into("<I", data, at, target - at)


def table_vectors(data: bytearray) -> tuple[int, int]:
    """Where the vector of methods is, and the vector of the last method's values."""
    reader = FlatBufferReader(memoryview(bytes(data)), InvalidProgram)
    plans = reader.table(tables.PROGRAM, reader.root())[1]
    return plans, reader.table(tables.EXECUTION_PLAN, reader.tables(plans)[-1])[2]


def null(count: int) -> list[Table]:
    return [(tables.EVALUE, (1, (tables.NULL, ())))] * count


def test_many_methods_that_are_one() -> None:
    data = bare(program_table(execution_plan=vector(*[plan_table()] * 20_000, plan_table(*null(20_000)))))
    plans, _ = table_vectors(data)
    last = plans + 4 * 20_001
    point_all_at(data, plans, last + struct.unpack_from("<I", data, last)[0])
    refuse(bytes(data), r"byte \d+: parts overlap: tables and vectors hold more together than the file has bytes")


def test_many_lists_that_are_one() -> None:
    """20,000 lists of 50,000 items each, which a verifier would walk through for minutes."""
    items = numbers("q", (0,) * 50_000)
    data = method_file(*null(20_000), (tables.EVALUE, (7, (tables.INT_LIST, (items,)))))
    _, values = table_vectors(data)
    last = values + 4 * 20_001
    point_all_at(data, values, last + struct.unpack_from("<I", data, last)[0])
    refuse(bytes(data), r"byte \d+: shared strings and vectors amount to more than 32 times the file")


def test_many_strings_that_are_one() -> None:
    string = (tables.EVALUE, (6, (tables.STRING, ("\u00e4" * 100_000,))))
    data = method_file(*null(20_000), string)
    _, values = table_vectors(data)
    last = values + 4 * 20_001
    point_all_at(data, values, last + struct.unpack_from("<I", data, last)[0])
    refuse(bytes(data), r"byte \d+: shared strings and vectors amount to more than 32 times the file")


def test_vectors_that_lie_within_each_other() -> None:
    """Each item of one list is, read as a length, the beginning of another that reaches to the first one's end."""
    items = numbers("q", tuple(range(2999, -1, -1)))
    lists = [(tables.EVALUE, (7, (tables.INT_LIST, (numbers("q", (0,) * 17),)))) for _ in range(2_000)]
    data = method_file(*lists, (tables.EVALUE, (7, (tables.INT_LIST, (items,)))))
    reader = FlatBufferReader(memoryview(bytes(data)), InvalidProgram)
    _, values = table_vectors(data)
    positions = [reader.table(tables.EVALUE, at)[1] for at in reader.tables(values)]
    start = reader.table(tables.INT_LIST, positions[-1])[0]
    for index, position in enumerate(positions[:-1]):
        struct.pack_into("<I", data, position + 4, start + 4 + 8 * index - position - 4)
    refuse(bytes(data), r"byte \d+: parts overlap: tables and vectors hold more together than the file has bytes")


@pytest.mark.parametrize("rank", [2, 16, 17, 200])
def test_sizes_without_end_cost_nothing(rank: int) -> None:
    """A product of a million sizes would take hours to work out; of sixteen, no time."""
    sizes, order = numbers("i", (2**31 - 1,) * rank), numbers("B", tuple(range(rank)))
    tensor = (tables.TENSOR, (6, 0, sizes, order, False, 1, None, 0, 0, None))
    data = method_file((tables.EVALUE, (5, tensor)))
    refuse(bytes(data), r"execution_plan\[0\]\.values\[0\]\.(sizes|data_buffer_idx): ")


def test_a_small_file_allocates_little(sample: Program) -> None:
    """Whatever four bytes of a small file are replaced by the largest number, little memory is needed to refuse it."""
    data = bytearray(serialize_program(sample))
    tracemalloc.start()
    try:
        for at in range(0, struct.unpack_from("<Q", data, 16)[0], 4):
            old = bytes(data[at : at + 4])
            data[at : at + 4] = b"\xff\xff\xff\x7f"
            with suppress(InvalidProgram):
                deserialize_program(bytes(data))
            data[at : at + 4] = old
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
