"""Records <-> the tables of a schema: what each field is, the table's layout and the record's annotation say.

    TENSOR = TableLayout("Tensor", sizes="[i]", allocation_info="AllocationDetails", …)      schema/program.fbs
    class Tensor: sizes: tuple[int, ...]; allocation_info: AllocationDetails | None = None   schema.py

A reference that a file leaves out is None or what the record's default factory makes, else "" or empty. A table without
a record stands for its union's member (`EValue`), its only field (`FrameList`), or a tuple of its fields. The reader
checks enums, and names the byte of a code that means nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from operator import attrgetter, itemgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from delegraph.errors import InvalidArgument
from delegraph.lazy_dataclass import MISSING, Field, fields, is_dataclass
from delegraph.program.flatbuffer.reader import FlatBufferReader
from delegraph.program.flatbuffer.table_layout import FieldKind, TableLayout, layouts_of

if TYPE_CHECKING:
    from delegraph.program.flatbuffer.builder import Table

__all__ = ["Conversion", "RecordCodec"]

Decode: TypeAlias = Callable[[FlatBufferReader, int], Any]
Encode: TypeAlias = "Callable[[Any], Table]"
Conversion: TypeAlias = tuple[Callable[[Any], Sequence[object]], Callable[..., object]]
"""Of a record that has other fields than its table: record -> the table's fields, and back."""

_ReadReference: TypeAlias = Callable[[FlatBufferReader, Any], object]
_Write: TypeAlias = Callable[[Any], object]
_Read: TypeAlias = Callable[[FlatBufferReader, Any, int], object]
"""(reader, the field as the table has it, the table's position) -> the record's field."""


class RecordCodec:
    """Reads and writes the records of a schema, which `tables` is the generated module of.

    `records` has each record, and each enum, under the name of its table; `conversions` are by that name too.
    """

    def __init__(
        self, tables: ModuleType, records: Mapping[str, Any], conversions: Mapping[str, Conversion] | None = None
    ) -> None:
        self._layouts = layouts_of(tables)
        self._records = records
        self._conversions = conversions or {}
        self._decoders: dict[str, Decode] = {}
        self._encoders: dict[str, Encode] = {}

    def decode(self, table: str, reader: FlatBufferReader, position: int) -> Any:
        """The record of the table of that name at `position`. Raises the reader's error for one that is damaged."""
        return self.decoder(table)(reader, position)

    def encode(self, table: str, record: object) -> Table:
        """The table of that name, as the builder takes it."""
        return self.encoder(table)(record)

    # ---- tables -> records ---------------------------------------------------------------------------

    def decoder(self, table: str) -> Decode:
        """The function that reads tables of that name."""
        if table not in self._decoders:
            self._decoders[table] = self._make_decoder(self._layouts[table])
        return self._decoders[table]

    def _make_decoder(self, layout: TableLayout) -> Decode:
        record = self._record(layout.name)
        if layout.name in self._conversions:
            make = self._conversions[layout.name][1]
            return lambda reader, position: make(*reader.table(layout, position))
        # What a table is to become is found out once, here: a program may have a million of them.
        if record is not None:
            return self._record_decoder(layout, record)
        if layout.kinds[-1].form == "union":
            return self._union_decoder(layout)
        if len(layout.names) == 1:
            read = self._reader_of(layout, 0, None)
            assert read is not None
            return lambda reader, position: read(reader, reader.table(layout, position)[0], position)
        return lambda reader, position: tuple(reader.table(layout, position))

    def _record_decoder(self, layout: TableLayout, record: type[Any]) -> Decode:
        parts = fields(record)
        if not parts:  # its type says all, so that one instance will do
            instance = record()
            return lambda reader, position: instance
        order = [_index(layout, field) for field in parts]
        reads = [
            (index, read)
            for index, field in zip(order, parts, strict=True)
            if (read := self._reader_of(layout, index, field)) is not None
        ]
        in_order, pick = order == [*range(len(layout.names))], itemgetter(*order)

        def decode(reader: FlatBufferReader, position: int) -> object:
            values = reader.table(layout, position)
            for index, read in reads:
                values[index] = read(reader, values[index], position)
            return record(*(values if in_order else pick(values)))

        return decode

    def _union_decoder(self, layout: TableLayout) -> Decode:
        decoders = [self.decoder(member) for member in layout.kinds[-1].of]

        def decode(reader: FlatBufferReader, position: int) -> object:
            code, at = reader.table(layout, position)
            if at is None or not 0 < code <= len(decoders):
                reader.refuse(position, f"an {layout.name} of union code {code} has no value that this version knows")
            return decoders[code - 1](reader, at)

        return decode

    def _reader_of(self, layout: TableLayout, index: int, field: Field[object] | None) -> _Read | None:
        """The function that reads a field; None of a number, which is read already."""
        kind = layout.kinds[index]
        if kind.form == "number":
            return _enum_reader(self._enum(kind, field))
        read = self._reference_reader(kind, field)
        # A vector or text that is not there reads as empty; a table, or an optional field, is told apart from that.
        absent = _absent(layout, index, field)
        if absent is None:
            return lambda reader, at, position: read(reader, at)
        return lambda reader, at, position: absent(reader, position) if at is None else read(reader, at)

    def _reference_reader(self, kind: FieldKind, field: Field[object] | None) -> _ReadReference:
        """The function that reads what a reference refers to; of None "" or nothing, but for a table."""
        # Annotations are texts, as the records' modules import them from the future.
        annotation = "tuple" if field is None else str(field.type)
        collect: Callable[[Iterable[object]], Sequence[object]] = tuple if annotation.startswith("tuple") else list
        (of, *_) = kind.of or ("",)
        if kind.form == "text":
            return FlatBufferReader.string
        if kind.form == "numbers" and annotation.startswith("bytes"):
            return lambda reader, at: bytes(reader.view(at))
        if kind.form == "numbers":
            return lambda reader, at: reader.vector(of, at) if collect is tuple else list(reader.vector(of, at))
        decode = self.decoder(of)
        if kind.form == "table":
            return decode
        return lambda reader, at: collect([decode(reader, each) for each in reader.tables(at)])

    def _record(self, table: str) -> type[Any] | None:
        record = self._records.get(table)
        return record if isinstance(record, type) and is_dataclass(record) else None

    def _enum(self, kind: FieldKind, field: Field[object] | None) -> type[Enum] | None:
        names = (*kind.of, *([] if field is None else [str(field.type)]))
        return next((self._records[name] for name in names if name in self._records), None)

    # ---- records -> tables ---------------------------------------------------------------------------

    def encoder(self, table: str) -> Encode:
        """The function that writes tables of that name."""
        if table not in self._encoders:
            self._encoders[table] = self._make_encoder(self._layouts[table])
        return self._encoders[table]

    def _make_encoder(self, layout: TableLayout) -> Encode:
        record = self._record(layout.name)
        if layout.name in self._conversions:
            split = self._conversions[layout.name][0]
            return lambda value: (layout, tuple(split(value)))
        if record is not None:
            return self._record_encoder(layout, record)
        if layout.kinds[-1].form == "union":
            members = {member: (code, self.encoder(member)) for code, member in enumerate(layout.kinds[-1].of, start=1)}

            def encode(value: object) -> Table:
                code, member = members[type(value).__name__]
                return layout, (code, member(value))

            return encode
        if len(layout.names) == 1:
            write = self._writer_of(layout, 0, None)
            assert write is not None
            return lambda value: (layout, (write(value),))
        return lambda value: (layout, tuple(value))

    def _record_encoder(self, layout: TableLayout, record: type[Any]) -> Encode:
        by_index = {_index(layout, field): field for field in fields(record)}
        if not by_index:
            return lambda value: (layout, ())
        # One call gets all fields; of a single one it gives the field itself, and no tuple.
        get = attrgetter(*(by_index[index].name for index in range(len(layout.names))))
        writes = [
            (index, write)
            for index, field in by_index.items()
            if (write := self._writer_of(layout, index, field)) is not None
        ]
        if len(layout.names) == 1:
            write = writes[0][1] if writes else _itself
            return lambda value: (layout, (write(get(value)),))

        def encode(value: object) -> Table:
            values = [*get(value)]
            for index, write in writes:
                values[index] = write(values[index])
            return layout, tuple(values)

        return encode

    def _writer_of(self, layout: TableLayout, index: int, field: Field[object] | None) -> _Write | None:
        """The function that writes a field; None of one that is written as it is."""
        kind, default = layout.kinds[index], layout.defaults[index]
        if kind.form == "number":
            enum = self._enum(kind, field)
            if enum is not None and not issubclass(enum, IntEnum):
                return lambda value: _position(enum, value)
            return (lambda value: default if value is None else value) if _is_optional(field) else None
        if kind.form == "text":
            return None
        write = self._reference_writer(kind, field)
        return (lambda value: None if value is None else write(value)) if _is_optional(field) else write

    def _reference_writer(self, kind: FieldKind, field: Field[object] | None) -> _Write:
        from delegraph.program.flatbuffer.builder import Tables, Vector, numbers  # devices read programs

        (of, *_) = kind.of
        if kind.form == "numbers" and field is not None and str(field.type).startswith("bytes"):
            return lambda value: Vector(value, len(value), 1)
        if kind.form == "numbers":
            return lambda value: numbers(of, value if type(value) is tuple else tuple(value))
        encode = self.encoder(of)
        return encode if kind.form == "table" else lambda value: Tables(encode, value)


def _index(layout: TableLayout, field: Field[object]) -> int:
    """The table's field of that name; the only one of a table of one field, whatever it is called."""
    return 0 if len(layout.names) == 1 else layout.names.index(field.name)


def _is_optional(field: Field[object] | None) -> bool:
    return field is not None and "None" in str(field.type)


def _enum_reader(enum: type[Enum] | None) -> _Read | None:
    """Codes of an enum of numbers are its members; of one of texts, they count its members, which read as texts."""
    if enum is None:
        return None
    if issubclass(enum, IntEnum):
        return lambda reader, code, position: reader.enum(enum, code, position)
    texts = [member.value for member in enum]

    def read(reader: FlatBufferReader, code: int, position: int) -> object:
        if not 0 <= code < len(texts):
            reader.refuse(position, f"{enum.__name__} has no code {code}")
        return texts[code]

    return read


def _position(enum: type[Enum], text: str) -> int:
    texts = [member.value for member in enum]
    if text not in texts:
        raise InvalidArgument(f"no value is of type {text!r}; the types are {', '.join(texts)}")
    return texts.index(text)


def _absent(layout: TableLayout, index: int, field: Field[object] | None) -> Decode | None:
    """The function that makes what a reference that a table does not have reads as; None: it is read as empty."""
    if field is not None and field.default_factory is not MISSING:
        make = field.default_factory
        return lambda reader, position: make()
    if _is_optional(field):
        return lambda reader, position: None
    if layout.kinds[index].form == "table":
        return lambda reader, position: reader.refuse(position, f"a {layout.name} has no {layout.names[index]}")
    return None


def _itself(value: object) -> object:
    return value
