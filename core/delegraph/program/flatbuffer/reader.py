"""Bytes of a flatbuffer -> fields of its tables, bounds-checked, for files from strangers.

Why not the classes that flatc generates: they check nothing, and make a call per field. Here one compiled `struct`
per vtable unpacks all fields of a table at once, and whatever points outside the buffer raises.

Time and memory are bounded by the size of the buffer, however its parts overlap or refer to each other. The schemas
hold no recursive type. All tables and elements that are read may number no more than the buffer has bytes, and strings
and vectors that several tables share, which are read once, may be met again only `SHARING` times as often. A sound
file meets this by nature; one that hides a million items behind one thousand references to one thousand does not.

Format: https://flatbuffers.dev/internals
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from operator import itemgetter
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, cast

from delegraph.errors import RuntimeFault
from delegraph.program.flatbuffer.table_layout import TableLayout

_E = TypeVar("_E", bound=IntEnum)

SHARING: Final = 32
"""Elements of shared strings and vectors that a file may refer to, per byte that it has."""

_I32 = struct.Struct("<i").unpack_from
_U32 = struct.Struct("<I").unpack_from
_VTABLE_HEAD = struct.Struct("<HH").unpack_from


class _Unpacking(NamedTuple):
    """A table's layout under one vtable: how to unpack it, and how to bring that into the order of the field ids."""

    unpack: Callable[..., tuple[object, ...]]
    pick: Callable[[tuple[object, ...]], tuple[Any, ...]]
    refs: tuple[tuple[int, int], ...]  # of each reference: its field id, its offset in the table


class FlatBufferReader:
    """Reads tables, vectors and strings at absolute positions. Every violation raises `error` and names its byte."""

    def __init__(self, buffer: memoryview, error: type[RuntimeFault]) -> None:
        self.buffer = buffer
        self._error = error
        self._shapes: dict[tuple[TableLayout, int], _Unpacking] = {}
        self._vectors: dict[tuple[int, str], tuple[Any, ...]] = {}
        self._strings: dict[int, str] = {}
        self._reads_left = len(buffer)
        self._repeats_left = SHARING * len(buffer)

    def refuse(self, position: int, what: str) -> NoReturn:
        """Raise the reader's error for the byte at `position`."""
        raise self._error(f"byte {position}: {what}; the file is damaged")

    def root(self) -> int:
        """The position of the root table."""
        if len(self.buffer) < 8:
            self.refuse(0, f"a flatbuffer has at least 8 bytes, this has {len(self.buffer)}")
        return int(_U32(self.buffer, 0)[0])

    def table(self, layout: TableLayout, position: int) -> list[Any]:
        """The table's fields in the order of their ids: scalars as they are, references as absolute positions."""
        try:
            # A table begins with the signed distance back to its vtable, which other tables share.
            vtable = position - _I32(self.buffer, position)[0]
            shape = self._shapes.get((layout, vtable)) or self._compile(layout, position, vtable)
            fields = list(shape.pick(shape.unpack(self.buffer, position) + layout.defaults))
        except struct.error:
            self.refuse(position, f"a {layout.name} table lies outside the {len(self.buffer)} bytes there are")
        for index, offset in shape.refs:
            if not fields[index]:
                self.refuse(position, f"{layout.name}.{layout.names[index]} refers to itself")
            fields[index] += position + offset
        return fields

    def tables(self, position: int | None) -> list[int]:
        """The positions of the tables in a vector of tables; none where the vector is absent."""
        if position is None:
            return []
        offsets = self.vector("I", position)
        self._read(position, len(offsets))
        first = position + 4
        return [first + 4 * i + offset for i, offset in enumerate(offsets)]

    def vector(self, code: str, position: int | None) -> tuple[Any, ...]:
        """A vector of numbers of one `struct` code; empty where it is absent."""
        if position is None:
            return ()
        numbers = self._vectors.get((position, code))
        if numbers is not None:
            self._repeat(position, len(numbers))
            return numbers
        count = self._count(position, struct.calcsize(f"<{code}"))
        self._read(position, count)
        numbers = self._vectors[position, code] = struct.unpack_from(f"<{count}{code}", self.buffer, position + 4)
        return numbers

    def string(self, position: int | None) -> str:
        """A string; empty where it is absent."""
        if position is None:
            return ""
        text = self._strings.get(position)
        if text is not None:
            self._repeat(position, len(text))
            return text
        data = self.view(position)
        if bytes(self.buffer[position + 4 + len(data) :][:1]) != b"\0":
            self.refuse(position, "a string does not end with a NUL")
        try:
            text = self._strings[position] = str(data, "utf-8")
        except UnicodeDecodeError:
            self.refuse(position, "a string is not UTF-8")
        return text

    def enum(self, kind: type[_E], code: int, position: int) -> _E:
        """The member of `kind` for a code in the table at `position`."""
        member = kind._value2member_map_.get(code)
        if member is None:
            self.refuse(position, f"{kind.__name__} has no code {code}")
        return cast(_E, member)

    def view(self, position: int | None) -> memoryview:
        """A vector of bytes, as a view into the buffer; empty where it is absent."""
        if position is None:
            return self.buffer[:0]
        count = self._count(position, 1)
        self._read(position, count)
        return self.buffer[position + 4 : position + 4 + count]

    def _count(self, position: int, element_size: int) -> int:
        if position + 4 > len(self.buffer):
            self.refuse(position, f"a vector lies outside the {len(self.buffer)} bytes there are")
        count: int = _U32(self.buffer, position)[0]
        if count * element_size > len(self.buffer) - position - 4:
            self.refuse(position, f"a vector of {count} elements is longer than the file")
        return count

    def _read(self, position: int, count: int) -> None:
        self._reads_left -= count
        if self._reads_left < 0:
            self.refuse(position, "parts overlap: tables and vectors hold more together than the file has bytes")

    def _repeat(self, position: int, count: int) -> None:
        self._repeats_left -= count
        if self._repeats_left < 0:
            self.refuse(position, f"shared strings and vectors amount to more than {SHARING} times the file")

    def _compile(self, layout: TableLayout, position: int, vtable: int) -> _Unpacking:
        """The shape of `layout` under the vtable at `vtable`. Raises `struct.error` where that lies outside."""
        if vtable < 0:
            self.refuse(position, f"the vtable of a {layout.name} lies before the file")
        size, _ = _VTABLE_HEAD(self.buffer, vtable)
        if size < 4:
            self.refuse(position, f"the vtable of a {layout.name} has {size} bytes")
        # u16 its bytes, u16 the table's, then a u16 per field; a newer file may have fields that this layout lacks.
        count = min(size // 2 - 2, len(layout.names))
        slots: tuple[int, ...] = struct.unpack_from(f"<{count}H", self.buffer, vtable + 4)
        return self._shapes.setdefault((layout, vtable), self._shape(layout, position, slots))

    def _shape(self, layout: TableLayout, position: int, slots: tuple[int, ...]) -> _Unpacking:
        # One struct unpacks a table in the order of bytes: gaps are "x", pad bytes, and no field may begin in another.
        present = sorted((offset, index) for index, offset in enumerate(slots) if offset)
        form, end = "<", 0
        for offset, index in present:
            if offset < max(end, 4):
                self.refuse(position, f"fields of a {layout.name} overlap")
            form += f"{offset - end}x{layout.codes[index]}"
            end = offset + struct.calcsize(f"<{layout.codes[index]}")
        rank = {index: place for place, (_, index) in enumerate(present)}
        return _Unpacking(
            struct.Struct(form).unpack_from,
            # out of what is unpacked, followed by the defaults of all fields
            _picker([rank.get(index, len(present) + index) for index in range(len(layout.names))]),
            tuple((index, offset) for offset, index in present if layout.is_ref[index]),
        )


def _picker(order: list[int]) -> Callable[[tuple[object, ...]], tuple[Any, ...]]:
    """A function that picks the elements of `order` out of a tuple (itemgetter alone returns a tuple from two up)."""
    if len(order) >= 2:
        return itemgetter(*order)
    return lambda values: tuple(values[i] for i in order)
