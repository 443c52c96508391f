"""The generated tables say what `schema/*.fbs` say, and flatc's own classes read and write the same bytes as ours."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import flatbuffers
import pytest
from core.tests.program.flatc import flat_tensor_generated, program_generated

from delegraph.program import deserialize_program, serialize_program
from delegraph.program._generated import (
    bundled_program_tables,
    etdump_tables,
    flat_tensor_tables,
    program_tables,
)
from delegraph.program.flat_tensor import (
    ExternalData,
    FlatTensor,
    TensorLayout,
    deserialize_flat_tensor,
    serialize_flat_tensor,
)
from delegraph.program.flatbuffer.table_layout import TableLayout, layouts_of
from delegraph.program.schema import Program, ScalarType

SCHEMA = Path(__file__).parents[3] / "schema"
CODES = {
    **{"byte": "b", "ubyte": "B", "bool": "?", "int": "i", "uint": "I", "uint32": "I", "long": "q", "uint64": "Q"},
    **{"ulong": "Q", "int32": "i", "int64": "q", "uint8": "B", "float": "f", "double": "d", "string": "text"},
}


def declared_tables(text: str) -> dict[str, dict[str, str]]:
    """Each table of a schema: its fields in order, as a `TableLayout` says them."""
    text = re.sub(r"//.*", "", text)
    enums = {name: CODES[kind] for name, kind in re.findall(r"enum (\w+)\s*:\s*(\w+)", text)} | {"ScalarType": "b"}
    unions = {name: " | ".join(body.replace(" ", "").replace("\n", "").strip(",").split(","))
              for name, body in re.findall(r"union (\w+) \{(.*?)\}", text, re.DOTALL)}  # fmt: skip
    tables: dict[str, dict[str, str]] = {}
    for name, body in re.findall(r"table (\w+) \{(.*?)\}", text, re.DOTALL):
        fields = tables[name] = {}
        pattern = r"(\w+):\s*(\[?)([\w.]+)\]?(?:\s*(=)\s*(-?\d+))?"
        for field, many, kind, equals, default in re.findall(pattern, re.sub(r"\(.*?\)", "", body)):
            kind = kind.rpartition(".")[2]
            if kind in unions:
                fields[f"{field}_type"] = "B"
            code = CODES.get(kind) or unions.get(kind) or (f"{enums[kind]} {kind}" if kind in enums else kind)
            fields[field] = f"[{code}]" if many else code + (f"={default}" if equals and default != "0" else "")
    return tables


@pytest.mark.parametrize(
    ("schema", "module"),
    [
        ("program", program_tables),
        ("flat_tensor", flat_tensor_tables),
        ("bundled_program", bundled_program_tables),
        ("etdump", etdump_tables),
    ],
)
def test_generated_tables_are_those_of_the_schema(schema: str, module: ModuleType) -> None:
    declared = declared_tables((SCHEMA / f"{schema}.fbs").read_text())
    assert len(declared) >= 4
    layouts = layouts_of(module)
    assert layouts.keys() == declared.keys()
    for name, fields in declared.items():
        expected, layout = TableLayout(name, **fields), layouts[name]
        for attribute in TableLayout.__slots__:
            assert getattr(layout, attribute) == getattr(expected, attribute), (name, attribute)


def test_scalar_types_are_those_of_the_schema() -> None:
    declared = re.findall(r"(\w+) = (\d+)", (SCHEMA / "scalar_type.fbs").read_text())
    assert {name: int(code) for name, code in declared} == {
        member.name.upper(): member.value  # QUINT4x2, as ExecuTorch's Python class has it, is QUINT4X2 in its schema
        for member in ScalarType
    }


# ---- flatc's classes as the reference --------------------------------------------------------------


Objects = Callable[[bytes], program_generated.ProgramT]
Bytes = Callable[..., bytes]


def segment_data(data: bytes) -> bytes:
    base: int = struct.unpack_from("<Q", data, 24)[0]
    return data[base:]


def test_flatc_reads_what_we_write(sample: Program, flatc_program: Objects) -> None:
    program = flatc_program(serialize_program(sample))
    plan = program.executionPlan[0]
    assert plan.name == b"forward"
    assert [value.valType for value in plan.values] == [5, 5, 2, 4, 1, 3, 6, 7, 8, 9, 10, 11, 5, 5, 5, 2, 5]
    bounded = plan.values[12].val
    assert (bounded.scalarType, list(bounded.sizes), list(bounded.dimOrder)) == (15, [4, 2], [0, 1])
    assert bounded.shapeDynamism == 1
    allocation = bounded.allocationInfo
    assert (allocation.memoryId, allocation.memoryOffsetLow, allocation.memoryOffsetHigh) == (1, 0, 2)
    assert plan.values[2].val.intVal == -(2**63)
    assert str(plan.values[3].val.doubleVal) == "-0.0"
    assert plan.values[14].val.extraTensorInfo.fullyQualifiedName == b"lm.weight"
    assert plan.values[14].val.extraTensorInfo.location == 1
    call = plan.chains[0].instructions[0].instrArgs
    assert (call.opIndex, list(call.args)) == (0, [0, 1, 2, 12, 12])
    assert plan.chains[0].stacktrace[0].items[0].filename == b"model.py"
    assert list(plan.nonConstBufferSizes) == [0, 2**34, 16]
    assert [(d.processed.location, d.processed.index) for d in plan.delegates] == [(1, 2), (0, 0), (1, 2)]
    assert (program.constantSegment.segmentIndex, list(program.constantSegment.offsets)) == (0, [0, 0, 32])
    assert [(segment.offset, segment.size) for segment in program.segments] == [
        (0, 33),
        (128, 8),
        (256, 4),
        (384, 0),
        (384, 5),
    ]
    assert [(entry.key, entry.segmentIndex) for entry in program.namedData] == [(b"empty", 3), (b"k", 4), (b"same", 4)]


def test_we_read_what_flatc_writes(sample: Program, flatc_program: Objects, flatc_bytes: Bytes) -> None:
    ours = serialize_program(sample)
    theirs = flatc_bytes(flatc_program(ours), segment_data(ours))
    assert theirs != ours
    assert deserialize_program(theirs) == sample


def test_constants_inside_the_flatbuffer_are_read(sample: Program, flatc_program: Objects, flatc_bytes: Bytes) -> None:
    """As files from before there was a constant segment have them."""
    ours = serialize_program(sample)
    program = flatc_program(ours)
    program.constantSegment = None
    program.constantBuffer = [program_generated.BufferT(list(data)) for data in sample.constants]
    assert deserialize_program(flatc_bytes(program, segment_data(ours))) == sample


def test_an_empty_constant_segment_gives_way_to_inline_constants(
    sample: Program, flatc_program: Objects, flatc_bytes: Bytes
) -> None:
    ours = serialize_program(sample)
    program = flatc_program(ours)
    program.constantSegment = program_generated.SubsegmentOffsetsT(0, [])
    program.constantBuffer = [program_generated.BufferT(list(data)) for data in sample.constants]
    assert deserialize_program(flatc_bytes(program, segment_data(ours))) == sample


def test_absent_fields_read_as_their_defaults(flatc_bytes: Bytes) -> None:
    """A method with nothing but its name: no metadata, no lists, no constants."""
    program = program_generated.ProgramT()
    plan = program_generated.ExecutionPlanT()
    plan.name = "forward"
    plan.chains = [program_generated.ChainT()]
    plan.nonConstBufferSizes = [0]
    program.executionPlan = [plan]
    (read,) = deserialize_program(flatc_bytes(program)).execution_plan
    assert (read.name, read.values, read.inputs, read.operators, read.delegates) == ("forward", (), (), (), ())
    assert read.chains[0].instructions == ()
    assert read.chains[0].stacktrace is None
    assert read.non_const_buffer_device is None


def test_headers_of_24_bytes_are_read(sample: Program) -> None:
    """Files from before 1.0 do not say how many bytes of segments there are."""
    data = bytearray(serialize_program(sample))
    struct.pack_into("<I", data, 12, 24)
    struct.pack_into("<Q", data, 32, 2**60)
    assert deserialize_program(bytes(data)) == sample


def test_longer_headers_are_read(sample: Program) -> None:
    data = bytearray(serialize_program(sample))
    struct.pack_into("<I", data, 12, 64)
    assert deserialize_program(bytes(data)) == sample


def test_what_follows_the_segments_is_ignored(sample: Program) -> None:
    assert deserialize_program(serialize_program(sample) + b"anything") == sample


# ---- .ptd ------------------------------------------------------------------------------------------


def test_flatc_reads_our_ptd_and_we_read_its() -> None:
    layout = TensorLayout(ScalarType.SHORT, (2, 3), (1, 0))
    ours = FlatTensor({"w": ExternalData(bytes(range(12)), layout), "blob": ExternalData(b"x")})
    data = serialize_flat_tensor(ours)
    assert flat_tensor_generated.FlatTensor.FlatTensorBufferHasIdentifier(data, 0)
    theirs = flat_tensor_generated.FlatTensorT.InitFromPackedBuf(data)
    assert [(segment.offset, segment.size) for segment in theirs.segments] == [(0, 12), (128, 1)]
    assert [(entry.key, entry.segmentIndex) for entry in theirs.namedData] == [(b"w", 0), (b"blob", 1)]
    assert theirs.namedData[0].tensorLayout.scalarType == 2
    assert list(theirs.namedData[0].tensorLayout.sizes) == [2, 3]
    assert theirs.namedData[1].tensorLayout is None

    builder = flatbuffers.Builder()
    builder.Finish(theirs.Pack(builder), file_identifier=b"FT01")
    plain = bytes(builder.Output())
    end = len(plain) + 48
    base = -(-end // 128) * 128
    head = struct.pack(
        "<I4s4sIQQQQ8x", struct.unpack_from("<I", plain)[0] + 48, b"FT01", b"FH01", 40, 48, len(plain), base, 129
    )
    old_base = struct.unpack_from("<Q", data, 32)[0]
    assert deserialize_flat_tensor(head + plain[8:] + bytes(base - end) + data[old_base:]) == ours
