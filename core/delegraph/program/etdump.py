"""The events of runs <-> the bytes of an ETDump (`.etdp`), ExecuTorch's file of times and intermediate values.

    0   u32     bytes of the flatbuffer that follows      8   "ED00"
    4   u32     position of its root table, from here     12  the tables

Tensors' data are not in it but in a second file, the debug buffer: `Tensor.offset` says where. Records and fields have
the names of ExecuTorch's `devtools/etdump/etdump_schema_flatcc.fbs`, whose format this is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from delegraph.errors import InvalidArgument
from delegraph.program._generated import etdump_tables as tables
from delegraph.program.flatbuffer_builder import Table, Tables, Vector, build, numbers
from delegraph.program.flatbuffer_reader import FlatBufferReader
from delegraph.program.schema import Buffer, ScalarType
from delegraph.program.table_layout import TableLayout

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
    root = (tables.ETDUMP, (etdump.version, Tables(_run_table, etdump.run_data)))
    if not size_prefixed:
        return bytes(build(bytes(4) + IDENTIFIER, root))
    buffer = build(bytes(8) + IDENTIFIER, root)
    (position,) = struct.unpack_from("<I", buffer)
    struct.pack_into("<II", buffer, 0, len(buffer) - 4, position - 4)
    return bytes(buffer)


def _run_table(run: RunData) -> Table:
    index = -1 if run.bundled_input_index is None else run.bundled_input_index
    return tables.RUN_DATA, (
        run.name,
        index,
        None if run.allocators is None else Tables(lambda record: (tables.ALLOCATOR, (record.name,)), run.allocators),
        None if run.events is None else Tables(_event_table, run.events),
    )


def _event_table(event: Event) -> Table:
    profile, allocation, debug = event.profile_event, event.allocation_event, event.debug_event
    return tables.EVENT, (
        profile and _profile_table(profile),
        allocation and (tables.ALLOCATION_EVENT, (allocation.allocator_id, allocation.allocation_size)),
        debug and _debug_table(debug),
    )


def _profile_table(event: ProfileEvent) -> Table:
    metadata = event.delegate_debug_metadata
    return tables.PROFILE_EVENT, (
        event.name,
        event.chain_index,
        event.instruction_id,
        _number(event.delegate_debug_id_int),
        event.delegate_debug_id_str,
        None if metadata is None else Vector(metadata, len(metadata), 1),
        event.start_time,
        event.end_time,
    )


def _debug_table(event: DebugEvent) -> Table:
    return tables.DEBUG_EVENT, (
        event.chain_index,
        event.instruction_id,
        _value_table(event.debug_entry),
        _number(event.delegate_debug_id_int),
        event.delegate_debug_id_str,
        event.name,
    )


def _number(delegate_id: int | None) -> int:
    return -1 if delegate_id is None else delegate_id


def _value_table(value: Value) -> Table:
    try:
        code = _TYPES.index(ValueType(value.val))
    except ValueError:
        known = ", ".join(kind.value for kind in ValueType)
        raise InvalidArgument(f"no value is of type {value.val!r}; the types are {known}") from None
    return tables.VALUE, (
        code,
        value.tensor and _tensor_table(value.tensor),
        value.tensor_list and (tables.TENSOR_LIST, (Tables(_tensor_table, value.tensor_list.tensors),)),
        value.int_value and (tables.INT, (value.int_value.int_val,)),
        value.float_value and (tables.FLOAT, (value.float_value.float_val,)),
        value.double_value and (tables.DOUBLE, (value.double_value.double_val,)),
        value.bool_value and (tables.BOOL, (value.bool_value.bool_val,)),
        value.output and (tables.BOOL, (value.output.bool_val,)),
    )


def _tensor_table(tensor: Tensor) -> Table:
    sizes, strides = numbers("q", tuple(tensor.sizes)), numbers("q", tuple(tensor.strides))
    return tables.TENSOR, (tensor.scalar_type, sizes, strides, tensor.offset or 0)


_TYPES: Final = tuple(ValueType)


# ---- bytes -> records ------------------------------------------------------------------------------


def deserialize_etdump(data: Buffer, size_prefixed: bool = True) -> ETDump:
    """The records in `data`; `size_prefixed` as a file is. Raises `InvalidArgument` for a damaged one."""
    view = memoryview(data)[4 if size_prefixed else 0 :]
    if bytes(view[4:8]) != IDENTIFIER:
        identifier = bytes(view[4:8])
        raise InvalidArgument(
            f"not an ETDump: it has {identifier!r} at byte {8 if size_prefixed else 4}, not {IDENTIFIER!r}"
        )
    return _Decoder(FlatBufferReader(view, InvalidArgument)).etdump()


class _Decoder:
    """Reads each table of the schema into its record."""

    def __init__(self, reader: FlatBufferReader) -> None:
        self.reader = reader

    def etdump(self) -> ETDump:
        version, runs = self.reader.table(tables.ETDUMP, self.reader.root())
        return ETDump(version, self._rows(self._run, runs))

    def _rows(self, read: Callable[[int], Any], position: int | None) -> list[Any]:
        return [read(at) for at in self.reader.tables(position)]

    def _run(self, position: int) -> RunData:
        name, index, allocators, events = self.reader.table(tables.RUN_DATA, position)
        return RunData(
            self.reader.string(name), index, self._rows(self._allocator, allocators), self._rows(self._event, events)
        )

    def _allocator(self, position: int) -> Allocator:
        return Allocator(self.reader.string(self.reader.table(tables.ALLOCATOR, position)[0]))

    def _event(self, position: int) -> Event:
        profile, allocation, debug = self.reader.table(tables.EVENT, position)
        return Event(
            None if profile is None else self._profile(profile),
            None if allocation is None else AllocationEvent(*self.reader.table(tables.ALLOCATION_EVENT, allocation)),
            None if debug is None else self._debug(debug),
        )

    def _profile(self, position: int) -> ProfileEvent:
        name, chain, instruction, number, text, metadata, start, end = self.reader.table(tables.PROFILE_EVENT, position)
        return ProfileEvent(
            self._text(name),
            chain,
            instruction,
            number,
            self._text(text),
            None if metadata is None else bytes(self.reader.view(metadata)),
            start,
            end,
        )

    def _debug(self, position: int) -> DebugEvent:
        chain, instruction, entry, number, text, name = self.reader.table(tables.DEBUG_EVENT, position)
        if entry is None:
            self.reader.refuse(position, "a DebugEvent has no value")
        return DebugEvent(self._text(name), chain, instruction, number, self._text(text), self._value(entry))

    def _value(self, position: int) -> Value:
        code, tensor, tensors, *scalars = self.reader.table(tables.VALUE, position)
        if not 0 <= code < len(_TYPES):
            self.reader.refuse(position, f"ValueType has no code {code}")
        rows = zip(_SCALARS, scalars, strict=True)
        return Value(
            _TYPES[code].value,
            None if tensor is None else self._tensor(tensor),
            None if tensors is None else self._tensor_list(tensors),
            *(None if at is None else record(self.reader.table(layout, at)[0]) for (layout, record), at in rows),
        )

    def _tensor_list(self, position: int) -> TensorList:
        return TensorList(self._rows(self._tensor, self.reader.table(tables.TENSOR_LIST, position)[0]))

    def _tensor(self, position: int) -> Tensor:
        code, sizes, strides, offset = self.reader.table(tables.TENSOR, position)
        scalar_type = self.reader.enum(ScalarType, code, position)
        return Tensor(scalar_type, list(self.reader.vector("q", sizes)), list(self.reader.vector("q", strides)), offset)

    def _text(self, position: int | None) -> str | None:
        return None if position is None else self.reader.string(position)


_SCALARS: Final[tuple[tuple[TableLayout, Callable[[Any], Any]], ...]] = (
    (tables.INT, Int),
    (tables.FLOAT, Float),
    (tables.DOUBLE, Double),
    (tables.BOOL, Bool),
    (tables.BOOL, Bool),
)
"""The fields of `Value` behind the tensors."""
