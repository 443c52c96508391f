"""The flatbuffer of a `.pte` <-> its tables one to one, as plain dicts, which tools show and edit below `Program`.

Those of a `.bpte` and a `.ptd` are read, too.

    {"version": 0, "execution_plan": [{"name": "forward", "values": [{"val_type": "Int", "val": {"int_val": 3}}, …]}]}

Keys are the fields of `schema/program.fbs`, as in the JSON that flatc writes: a union is its member's name and its
table, enums are their codes, vectors of bytes are bytes, absent fields are None. Segments stay where they are: only
the flatbuffer's records of them are here. Structure is checked, meaning is not (`deserialize.py` does both).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from delegraph.errors import InvalidArgument, InvalidProgram
from delegraph.program._generated import bundled_program_tables, flat_tensor_tables
from delegraph.program._generated import program_tables as tables
from delegraph.program.buffers import byte_view
from delegraph.program.files.header import BUNDLED_IDENTIFIER, IDENTIFIER, pack_head
from delegraph.program.files.serialize import FORCE_ALIGN
from delegraph.program.flat_tensor import IDENTIFIER as FLAT_TENSOR_IDENTIFIER
from delegraph.program.flatbuffer.builder import Table, Tables, Vector, build, numbers
from delegraph.program.flatbuffer.reader import FlatBufferReader
from delegraph.program.flatbuffer.table_layout import FieldKind, TableLayout, layouts_of
from delegraph.program.schema import Buffer

__all__ = ["read_tables", "table_layouts", "write_tables"]

_LAYOUTS: Final = layouts_of(tables)
_ROOTS: Final = {
    IDENTIFIER: (tables.PROGRAM, _LAYOUTS),
    BUNDLED_IDENTIFIER: (bundled_program_tables.BUNDLED_PROGRAM, layouts_of(bundled_program_tables)),
    FLAT_TENSOR_IDENTIFIER: (flat_tensor_tables.FLAT_TENSOR, layouts_of(flat_tensor_tables)),
}
"""Identifiers of files -> the root table, and all that it can refer to."""

_BYTES: Final = {
    ("CompileSpec", "value"): "",
    ("Buffer", "storage"): "constant_tensor_alignment",
    ("BackendDelegateInlineData", "data"): "delegate_alignment",
    ("BundledProgram", "program"): "",
    ("Tensor", "data"): "",
}
"""Fields that are bytes, not numbers of 8 bits -> the argument of `write_tables` that they are aligned by."""


def table_layouts(identifier: bytes) -> Mapping[str, TableLayout]:
    """Each table of the files with this identifier ("ET12", "BP08" or "FT01"), by its name: its fields, as schemas say.

    Raises `KeyError` for another identifier.
    """
    return _ROOTS[identifier][1]


# ---- bytes -> dicts --------------------------------------------------------------------------------


def read_tables(data: Buffer) -> dict[str, Any]:
    """The root table of the program in `data`, a whole `.pte` or its flatbuffer; or of a `.bpte` or a `.ptd`.

    Raises `InvalidProgram`.
    """
    view = byte_view(data)
    if bytes(view[4:8]) not in _ROOTS:
        raise InvalidProgram(f"not a .pte: bytes 4 to 8 are {bytes(view[4:8])!r}, not {IDENTIFIER!r}")
    root, layouts = _ROOTS[bytes(view[4:8])]
    reader = FlatBufferReader(view, InvalidProgram)
    return _TableReader(reader, layouts).table(root, reader.root())


class _TableReader:
    def __init__(self, reader: FlatBufferReader, layouts: Mapping[str, TableLayout]) -> None:
        self._reader = reader
        self._layouts = layouts

    def table(self, layout: TableLayout, position: int) -> dict[str, Any]:
        fields = dict(zip(layout.names, self._reader.table(layout, position), strict=True))
        for name, kind in zip(layout.names, layout.kinds, strict=True):
            at = fields[name]
            if kind.form == "union" and at is not None:
                code = fields[f"{name}_type"]
                if not 1 <= code <= len(kind.of):
                    self._reader.refuse(position, f"{layout.name}.{name} has no member of union code {code}")
                fields[f"{name}_type"] = kind.of[code - 1]
                fields[name] = self.table(self._layouts[kind.of[code - 1]], at)
            elif at is not None:
                fields[name] = self._field(layout.name, name, kind, at)
        return fields

    def _field(self, table: str, name: str, kind: FieldKind, at: Any) -> Any:
        if kind.form == "number":
            return at
        if kind.form == "text":
            return self._reader.string(at)
        if (table, name) in _BYTES:
            return bytes(self._reader.view(at))
        if kind.form == "numbers":
            return list(self._reader.vector(kind.of[0], at))
        if kind.form == "table":
            return self.table(self._layouts[kind.of[0]], at)
        return [self.table(self._layouts[kind.of[0]], each) for each in self._reader.tables(at)]


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
    return bytes(build(head, _TableWriter(alignments).table(tables.PROGRAM, program)))


class _TableWriter:
    def __init__(self, alignments: Mapping[str, int]) -> None:
        self._alignments = alignments

    def table(self, layout: TableLayout, record: Mapping[str, Any]) -> Table:
        fields: dict[str, object] = {}
        for name, kind, default in zip(layout.names, layout.kinds, layout.defaults, strict=True):
            value = record[name]
            if kind.form == "union":
                member = record[f"{name}_type"]
                if member not in kind.of:
                    raise InvalidArgument(f"{layout.name}.{name} is a {member}; it can be {', '.join(kind.of)}")
                fields[f"{name}_type"] = kind.of.index(member) + 1
                fields[name] = self.table(_LAYOUTS[member], value)
            elif value is None:
                fields[name] = default
            else:
                fields[name] = self._reference(layout.name, name, kind, value)
        return layout, tuple(fields.values())

    def _reference(self, table: str, name: str, kind: FieldKind, value: Any) -> object:
        if kind.form == "table":
            return self.table(_LAYOUTS[kind.of[0]], value)
        if kind.form == "tables":
            return Tables(partial(self.table, _LAYOUTS[kind.of[0]]), value)
        if (table, name) in _BYTES:
            return Vector(value, len(value), self._alignments.get(_BYTES[table, name], 1))
        return numbers(kind.of[0], tuple(value)) if kind.form == "numbers" else value
