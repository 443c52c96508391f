"""The flatbuffer of a `.pte` <-> its tables one to one, as plain dicts, which tools show and edit below `Program`.

    {"version": 0, "execution_plan": [{"name": "forward", "values": [{"val_type": "Int", "val": {"int_val": 3}}, …]}]}

Keys are the fields of `schema/program.fbs`, as in the JSON that flatc writes: a union is its member's name and its
table, enums are their codes, vectors of bytes are bytes, absent fields are None. Segments stay where they are: only
the flatbuffer's records of them are here. Structure is checked, meaning is not (`deserialize.py` does both).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from delegraph.errors import InvalidArgument, InvalidProgram
from delegraph.program._generated import program_tables as tables
from delegraph.program.buffers import byte_view
from delegraph.program.flatbuffer_builder import Table, Tables, Vector, build, numbers
from delegraph.program.flatbuffer_reader import FlatBufferReader
from delegraph.program.header import IDENTIFIER, pack_head
from delegraph.program.schema import Buffer
from delegraph.program.serialize import FORCE_ALIGN
from delegraph.program.table_layout import TableLayout

__all__ = ["read_tables", "write_tables"]


@dataclass(frozen=True, slots=True)
class _Text:
    """A string."""


@dataclass(frozen=True, slots=True)
class _Bytes:
    """A vector of bytes; `alignment` names the argument of `write_tables` that it follows, if it follows one."""

    alignment: str = ""


@dataclass(frozen=True, slots=True)
class _Numbers:
    """A vector of numbers of one `struct` code."""

    code: str = "i"


@dataclass(frozen=True, slots=True)
class _Many:
    """A vector of tables."""

    layout: TableLayout


@dataclass(frozen=True, slots=True)
class _Union:
    """One of several tables; its code, the position from 1 on, stands in the field before."""

    members: tuple[TableLayout, ...]


_Kind: TypeAlias = _Text | _Bytes | _Numbers | _Many | _Union | TableLayout

_VALUES: Final = _Union(
    (
        tables.NULL,
        tables.INT,
        tables.BOOL,
        tables.DOUBLE,
        tables.TENSOR,
        tables.STRING,
        tables.INT_LIST,
        tables.DOUBLE_LIST,
        tables.BOOL_LIST,
        tables.TENSOR_LIST,
        tables.OPTIONAL_TENSOR_LIST,
    )
)
_INSTRUCTIONS: Final = _Union(
    (tables.KERNEL_CALL, tables.DELEGATE_CALL, tables.MOVE_CALL, tables.JUMP_FALSE_CALL, tables.FREE_CALL)
)

_REFERENCES: Final[dict[TableLayout, dict[str, _Kind]]] = {
    tables.PROGRAM: {
        "execution_plan": _Many(tables.EXECUTION_PLAN),
        "constant_buffer": _Many(tables.BUFFER),
        "backend_delegate_data": _Many(tables.BACKEND_DELEGATE_INLINE_DATA),
        "segments": _Many(tables.DATA_SEGMENT),
        "constant_segment": tables.SUBSEGMENT_OFFSETS,
        "mutable_data_segments": _Many(tables.SUBSEGMENT_OFFSETS),
        "named_data": _Many(tables.NAMED_DATA),
    },
    tables.EXECUTION_PLAN: {
        "name": _Text(),
        "container_meta_type": tables.CONTAINER_METADATA,
        "values": _Many(tables.EVALUE),
        "inputs": _Numbers(),
        "outputs": _Numbers(),
        "chains": _Many(tables.CHAIN),
        "operators": _Many(tables.OPERATOR),
        "delegates": _Many(tables.BACKEND_DELEGATE),
        "non_const_buffer_sizes": _Numbers("q"),
        "non_const_buffer_device": _Many(tables.NON_CONST_BUFFER_DEVICE),
    },
    tables.CONTAINER_METADATA: {"encoded_inp_str": _Text(), "encoded_out_str": _Text()},
    tables.EVALUE: {"val": _VALUES},
    tables.TENSOR: {
        "sizes": _Numbers(),
        "dim_order": _Numbers("B"),
        "allocation_info": tables.ALLOCATION_DETAILS,
        "extra_tensor_info": tables.EXTRA_TENSOR_INFO,
    },
    tables.EXTRA_TENSOR_INFO: {"fully_qualified_name": _Text()},
    tables.STRING: {"string_val": _Text()},
    tables.INT_LIST: {"items": _Numbers("q")},
    tables.DOUBLE_LIST: {"items": _Numbers("d")},
    tables.BOOL_LIST: {"items": _Numbers("?")},
    tables.TENSOR_LIST: {"items": _Numbers()},
    tables.OPTIONAL_TENSOR_LIST: {"items": _Numbers()},
    tables.CHAIN: {
        "inputs": _Numbers(),
        "outputs": _Numbers(),
        "instructions": _Many(tables.INSTRUCTION),
        "stacktrace": _Many(tables.FRAME_LIST),
    },
    tables.INSTRUCTION: {"instr_args": _INSTRUCTIONS},
    tables.KERNEL_CALL: {"args": _Numbers()},
    tables.DELEGATE_CALL: {"args": _Numbers()},
    tables.FRAME_LIST: {"items": _Many(tables.FRAME)},
    tables.FRAME: {"filename": _Text(), "name": _Text(), "context": _Text()},
    tables.OPERATOR: {"name": _Text(), "overload": _Text()},
    tables.BACKEND_DELEGATE: {
        "id": _Text(),
        "processed": tables.BACKEND_DELEGATE_DATA_REFERENCE,
        "compile_specs": _Many(tables.COMPILE_SPEC),
    },
    tables.COMPILE_SPEC: {"key": _Text(), "value": _Bytes()},
    tables.BUFFER: {"storage": _Bytes("constant_tensor_alignment")},
    tables.BACKEND_DELEGATE_INLINE_DATA: {"data": _Bytes("delegate_alignment")},
    tables.SUBSEGMENT_OFFSETS: {"offsets": _Numbers("Q")},
    tables.NAMED_DATA: {"key": _Text()},
}
"""The kind of object that each reference of each table points to."""


# ---- bytes -> dicts --------------------------------------------------------------------------------


def read_tables(data: Buffer) -> dict[str, Any]:
    """The root table of the program in `data`, a whole `.pte` or its flatbuffer. Raises `InvalidProgram`."""
    view = byte_view(data)
    if bytes(view[4:8]) != IDENTIFIER:
        raise InvalidProgram(f"not a .pte: bytes 4 to 8 are {bytes(view[4:8])!r}, not {IDENTIFIER!r}")
    reader = FlatBufferReader(view, InvalidProgram)
    return _read_table(reader, tables.PROGRAM, reader.root())


def _read_table(reader: FlatBufferReader, layout: TableLayout, position: int) -> dict[str, Any]:
    fields = dict(zip(layout.names, reader.table(layout, position), strict=True))
    for name, kind in _REFERENCES.get(layout, {}).items():
        if fields[name] is None:
            continue
        if isinstance(kind, _Union):
            code = fields[f"{name}_type"]
            if not 1 <= code <= len(kind.members):
                reader.refuse(position, f"{layout.name}.{name} has no member of union code {code}")
            member = kind.members[code - 1]
            fields[f"{name}_type"] = member.name
            fields[name] = _read_table(reader, member, fields[name])
        else:
            fields[name] = _read(reader, kind, fields[name])
    return fields


def _read(reader: FlatBufferReader, kind: _Kind, position: int) -> Any:
    if isinstance(kind, TableLayout):
        return _read_table(reader, kind, position)
    if isinstance(kind, _Many):
        return [_read_table(reader, kind.layout, at) for at in reader.tables(position)]
    if isinstance(kind, _Numbers):
        return list(reader.vector(kind.code, position))
    return reader.string(position) if isinstance(kind, _Text) else bytes(reader.view(position))


# ---- dicts -> bytes --------------------------------------------------------------------------------


def write_tables(
    program: Mapping[str, Any], constant_tensor_alignment: int = FORCE_ALIGN, delegate_alignment: int = FORCE_ALIGN
) -> bytes:
    """The flatbuffer of these tables, without an extended header. Alignments, in bytes, are of inline data.

    Raises `InvalidArgument` for an alignment that is not a power of two, a union member that does not exist and more
    than 2 GiB, `KeyError` for a field that is missing.
    """
    alignments = {"constant_tensor_alignment": constant_tensor_alignment, "delegate_alignment": delegate_alignment}
    for name, alignment in alignments.items():
        if alignment < 1 or alignment & (alignment - 1):
            raise InvalidArgument(f"{name} is {alignment}; an alignment is a power of two")
    head = pack_head(None, max(FORCE_ALIGN, *alignments.values()))
    return bytes(build(head, _Writer(alignments).table(tables.PROGRAM, program)))


class _Writer:
    def __init__(self, alignments: Mapping[str, int]) -> None:
        self._alignments = alignments

    def table(self, layout: TableLayout, record: Mapping[str, Any]) -> Table:
        kinds = _REFERENCES.get(layout, {})
        fields: dict[str, Any] = {}
        for name, default in zip(layout.names, layout.defaults, strict=True):
            kind = kinds.get(name)
            value = record[name]
            if isinstance(kind, _Union):
                position = _position(kind, layout, name, record[f"{name}_type"])
                fields[f"{name}_type"] = position + 1
                fields[name] = self.table(kind.members[position], value)
            elif kind is not None and value is not None:
                fields[name] = self._reference(kind, value)
            else:
                fields[name] = default if value is None else value
        return layout, tuple(fields.values())

    def _reference(self, kind: _Kind, value: Any) -> Any:
        if isinstance(kind, TableLayout):
            return self.table(kind, value)
        if isinstance(kind, _Many):
            return Tables(lambda record, layout=kind.layout: self.table(layout, record), value)  # type: ignore[misc]
        if isinstance(kind, _Numbers):
            return numbers(kind.code, tuple(value))
        if isinstance(kind, _Bytes):
            return Vector(value, len(value), self._alignments.get(kind.alignment, 1))
        return value


def _position(union: _Union, layout: TableLayout, field: str, member: str) -> int:
    names = [case.name for case in union.members]
    if member not in names:
        raise InvalidArgument(f"{layout.name}.{field} is a {member}; it can be {', '.join(names)}")
    return names.index(member)
