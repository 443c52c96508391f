"""Tables as plain tuples -> the bytes of a flatbuffer.

A table is described by a tuple of its `TableLayout` and its fields in the order of their ids; a reference field holds
what it refers to: such a tuple, a vector of them (`Tables`), a string, or a `Vector` of packed numbers. `build` lays it
all out.

flatc's builder writes back to front, children first, field by field. This one writes front to back: the table, then
what it refers to. Each set of present fields has one compiled `struct` and one vtable in the file. Strings
and vectors stand last, since an offset is unsigned and can only point forwards; equal short ones are written once.

Format: https://flatbuffers.dev/internals
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from operator import ne
from typing import Any, Final, NamedTuple, TypeAlias

from delegraph.errors import InvalidArgument
from delegraph.program.flatbuffer.table_layout import TableLayout
from delegraph.program.schema import Buffer

MAX_SIZE: Final = 2**31 - 1
"""Bytes that a flatbuffer can have, by its signed 32-bit offsets."""
MAX_SHARED: Final = 128
"""Bytes up to which equal strings and vectors are shared. Of the tables that a program may have many of, `Frame` shares
the most for its size: three strings, with 20 bytes of its own. So sharing stays below the reader's `SHARING`."""


class Vector(NamedTuple):
    """The packed elements of a vector, their number, and the alignment of the first, in bytes."""

    data: Buffer
    length: int
    alignment: int


Table: TypeAlias = tuple[TableLayout, tuple[Any, ...]]


class Tables(NamedTuple):
    """A vector of tables, each described by `encode(row)` only when its turn comes: a program may have a million."""

    encode: Callable[[Any], Table]
    rows: Collection[object]


def numbers(code: str, values: tuple[float, ...]) -> Vector:
    """A vector of numbers of one `struct` code."""
    return Vector(struct.pack(f"<{len(values)}{code}", *values), len(values), struct.calcsize(code))


def rows(layout: TableLayout, fields: Collection[tuple[object, ...]]) -> Tables:
    """A vector of tables of one layout, by the fields of each."""
    return Tables(lambda row: (layout, row), fields)


def build(head: Buffer, root: Table) -> bytearray:
    """`head` with its first four bytes set to the position of `root`, then everything that `root` refers to.

    Raises `InvalidArgument` if that exceeds 2 GiB.
    """
    builder = _Builder(head)
    position = builder.table(*root)
    struct.pack_into("<I", builder.buffer, 0, position)
    builder.write_leaves()
    return builder.buffer


class _Packing(NamedTuple):
    """How tables of one layout with one set of fields present are packed."""

    packer: struct.Struct
    order: tuple[int, ...]  # field ids in the order in which they are packed: widest first, so that nothing is padded
    refs: tuple[tuple[int, int], ...]  # of each reference: its field id, its offset in the table
    alignment: int
    vtable: int


class _Builder:
    def __init__(self, head: Buffer) -> None:
        self.buffer = bytearray(head)
        self._shapes: dict[tuple[TableLayout, tuple[bool, ...]], _Packing] = {}
        self._leaves: dict[str | Vector | int, tuple[str | Vector, list[int]]] = {}

    def table(self, layout: TableLayout, fields: tuple[Any, ...]) -> int:
        """Append a table and, after it, the tables that it refers to; its position."""
        present = tuple(map(ne, fields, layout.omitted))
        shape = self._shapes.get((layout, present)) or self._compile(layout, present)
        buffer = self.buffer
        # The fields begin 4 bytes in, after the offset to the vtable, so it is there that the alignment must hold.
        buffer += bytes(-(len(buffer) + 4) % shape.alignment)
        position = len(buffer)
        # References are 0 until their targets have a position; `_refer` and `write_leaves` fill them in.
        values = [0 if layout.is_ref[i] else fields[i] for i in shape.order]
        buffer += shape.packer.pack(position - shape.vtable, *values)
        for index, offset in shape.refs:
            self._refer(position + offset, fields[index])
        return position

    def write_leaves(self) -> None:
        """Append the strings and vectors, and point at them whatever refers to them."""
        for leaf, references in self._leaves.values():
            data, length, alignment = _packed(leaf)
            if len(self.buffer) + len(data) + alignment > MAX_SIZE:
                raise InvalidArgument(
                    f"the program's tables exceed {MAX_SIZE} bytes, the limit of a flatbuffer; "
                    "keep delegate data in segments (extract_delegate_segments=True)"
                )
            # The elements are aligned, and their number stands in the 4 bytes before them.
            self.buffer += bytes(-(len(self.buffer) + 4) % max(4, alignment))
            position = len(self.buffer)
            self.buffer += struct.pack("<I", length)
            self.buffer += data
            for reference in references:
                struct.pack_into("<I", self.buffer, reference, position - reference)

    def _refer(self, reference: int, target: str | Vector | Tables | Table) -> None:
        if isinstance(target, str | Vector):
            # Equal short leaves have one key; a position in the file is a key that no other leaf has.
            key = target if _is_shared(target) else reference
            self._leaves.setdefault(key, (target, []))[1].append(reference)
            return
        position = self._table_vector(target) if isinstance(target, Tables) else self.table(*target)
        struct.pack_into("<I", self.buffer, reference, position - reference)

    def _table_vector(self, tables: Tables) -> int:
        self.buffer += bytes(-len(self.buffer) % 4)
        position = len(self.buffer)
        self.buffer += struct.pack("<I", len(tables.rows)) + bytes(4 * len(tables.rows))
        first = position + 4
        # The tables follow the vector; each offset counts from its own slot, 4 * i bytes behind the first.
        offsets = [self.table(*tables.encode(row)) - first - 4 * i for i, row in enumerate(tables.rows)]
        struct.pack_into(f"<{len(offsets)}I", self.buffer, first, *offsets)
        return position

    def _compile(self, layout: TableLayout, present: tuple[bool, ...]) -> _Packing:
        widths = [struct.calcsize(code) for code in layout.codes]
        order = sorted((i for i, there in enumerate(present) if there), key=lambda i: -widths[i])
        # vtable: u16 its bytes, u16 the table's bytes, u16 offset of each field in the table (0: absent)
        slots, end = [0] * len(present), 4  # the table's first 4 bytes are the offset to its vtable
        for index in order:
            slots[index] = end
            end += widths[index]
        while slots and not slots[-1]:  # readers take fields behind the end for absent
            slots.pop()
        self.buffer += bytes(-len(self.buffer) % 2)
        vtable = len(self.buffer)
        self.buffer += struct.pack(f"<HH{len(slots)}H", 4 + 2 * len(slots), end, *slots)
        shape = _Packing(
            struct.Struct("<i" + "".join(layout.codes[i] for i in order)),
            tuple(order),
            tuple((i, slots[i]) for i in order if layout.is_ref[i]),
            max([4, *(widths[i] for i in order)]),
            vtable,
        )
        return self._shapes.setdefault((layout, present), shape)


def _is_shared(leaf: str | Vector) -> bool:
    data = leaf.data if isinstance(leaf, Vector) else leaf
    return isinstance(data, str | bytes) and len(data) <= MAX_SHARED


def _packed(leaf: str | Vector) -> Vector:
    if isinstance(leaf, Vector):
        return leaf
    data = leaf.encode()
    return Vector(data + b"\0", len(data), 1)
