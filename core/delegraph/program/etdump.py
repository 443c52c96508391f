"""The events of runs <-> the bytes of an ETDump (`.etdp`), ExecuTorch's file of times and intermediate values.

    0   u32     bytes of the flatbuffer that follows      8   "ED00"
    4   u32     position of its root table, from here     12  the tables

Tensors' data are not in it but in a second file, the debug buffer: `Tensor.offset` says where. Records and fields have
the names of ExecuTorch's `devtools/etdump/etdump_schema_flatcc.fbs`, whose format this is.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum
from typing import Final

from delegraph.errors import InvalidArgument
from delegraph.lazy_dataclass import dataclass, field
from delegraph.program._generated import etdump_tables as tables
from delegraph.program.flatbuffer.builder import build
from delegraph.program.flatbuffer.reader import FlatBufferReader
from delegraph.program.flatbuffer.record_codec import RecordCodec
from delegraph.program.schema import Buffer, ScalarType

__all__ = [
    "AllocationEvent",
    "Allocator",
    "Bool",
    "DebugEvent",
    "Double",
    "ETDump",
    "Event",
    "Float",
    "Int",
    "Null",
    "ProfileEvent",
    "RunData",
    "String",
    "Tensor",
    "TensorList",
    "Value",
    "ValueType",
    "deserialize_etdump",
    "serialize_etdump",
]

IDENTIFIER: Final = b"ED00"


class ValueType(Enum):
    """The kind of a `Value`'s content, in the order of the codes on the wire."""

    NULL = "Null"
    INT = "Int"
    BOOL = "Bool"
    FLOAT = "Float"
    DOUBLE = "Double"
    TENSOR = "Tensor"
    TENSOR_LIST = "TensorList"
    STRING = "String"


@dataclass(slots=True)
class Tensor:
    """A tensor whose data begin `offset` bytes into the debug buffer; `strides` counts elements."""

    scalar_type: ScalarType
    sizes: Sequence[int]
    strides: Sequence[int]
    offset: int | None = None


@dataclass(slots=True)
class TensorList:
    """Several tensors."""

    tensors: Sequence[Tensor]


@dataclass(slots=True)
class Null:
    """Nothing."""


@dataclass(slots=True)
class Int:
    """A whole number."""

    int_val: int


@dataclass(slots=True)
class Bool:
    """True or false."""

    bool_val: bool


@dataclass(slots=True)
class Float:
    """A number in single precision."""

    float_val: float


@dataclass(slots=True)
class Double:
    """A number in double precision."""

    double_val: float


@dataclass(slots=True)
class String:
    """A text; no `Value` holds one."""

    string_val: str


@dataclass(slots=True)
class Value:
    """One value: `val`, the value of a `ValueType`, says which field holds it; `output` marks a program's output."""

    val: str
    tensor: Tensor | None = None
    tensor_list: TensorList | None = None
    int_value: Int | None = None
    float_value: Float | None = None
    double_value: Double | None = None
    bool_value: Bool | None = None
    output: Bool | None = None


@dataclass(slots=True)
class DebugEvent:
    """A value that an instruction wrote, or that a backend reports from inside of a delegate."""

    name: str | None
    chain_index: int
    instruction_id: int
    delegate_debug_id_int: int | None
    delegate_debug_id_str: str | None
    debug_entry: Value


@dataclass(slots=True)
class ProfileEvent:
    """A span of time in the runtime's unit. A delegate's own events have one of the two ids, and no name."""

    name: str | None
    chain_index: int
    instruction_id: int
    delegate_debug_id_int: int | None
    delegate_debug_id_str: str | None
    delegate_debug_metadata: bytes | None
    start_time: int
    end_time: int


@dataclass(slots=True)
class AllocationEvent:
    """`allocation_size` bytes that were taken from an allocator of the run, counted from 1."""

    allocator_id: int
    allocation_size: int


@dataclass(slots=True)
class Allocator:
    """An allocator that a run tracked."""

    name: str


@dataclass(slots=True)
class Event:
    """Exactly one of three."""

    profile_event: ProfileEvent | None = None
    allocation_event: AllocationEvent | None = None
    debug_event: DebugEvent | None = None


@dataclass(slots=True)
class RunData:
    """One load or one execution; `bundled_input_index` is -1 unless it ran on a bundled input."""

    name: str
    bundled_input_index: int | None = -1
    allocators: Sequence[Allocator] | None = field(default_factory=list)
    events: Sequence[Event] | None = field(default_factory=list)


@dataclass(slots=True)
class ETDump:
    """A whole file."""

    version: int
    run_data: Sequence[RunData]


# ---- records -> bytes ------------------------------------------------------------------------------


def serialize_etdump(etdump: ETDump, size_prefixed: bool = True) -> bytes:
    """The bytes of an ETDump; of a file if `size_prefixed`, else of the flatbuffer alone.

    Raises `InvalidArgument` for a value of no known type, or beyond 2 GiB.
    """
    root = _CODEC.encode("ETDump", etdump)
    if not size_prefixed:
        return bytes(build(bytes(4) + IDENTIFIER, root))
    buffer = build(bytes(8) + IDENTIFIER, root)
    (position,) = struct.unpack_from("<I", buffer)
    struct.pack_into("<II", buffer, 0, len(buffer) - 4, position - 4)
    return bytes(buffer)


# ---- bytes -> records ------------------------------------------------------------------------------


def deserialize_etdump(data: Buffer, size_prefixed: bool = True) -> ETDump:
    """The records in `data`; `size_prefixed` as a file is. Raises `InvalidArgument` for a damaged one."""
    view = memoryview(data)[4 if size_prefixed else 0 :]
    if bytes(view[4:8]) != IDENTIFIER:
        identifier = bytes(view[4:8])
        raise InvalidArgument(
            f"not an ETDump: it has {identifier!r} at byte {8 if size_prefixed else 4}, not {IDENTIFIER!r}"
        )
    reader = FlatBufferReader(view, InvalidArgument)
    etdump: ETDump = _CODEC.decode("ETDump", reader, reader.root())
    return etdump


_CODEC: Final = RecordCodec(tables, globals())
