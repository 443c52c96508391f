"""Named tensors and blobs <-> the bytes of a `.ptd`, the file of external constants.

    0   u32     position of the root table            8   "FH01"
    4   "FT01"                                        12  u32   header length: 40
                                                      16  u64   flatbuffer offset: 48, the bytes that the header takes
                                                      24  u64   flatbuffer size, without the header
                                                      32  u64   segment base offset
                                                      40  u64   segment data size

The flatbuffer's tables follow the header, then the segments, one per distinct blob. Format: ExecuTorch
`extension/flat_tensor/serialize/flat_tensor.fbs` and `flat_tensor_header.h`. Which lowering a file is of is one entry
more (`weights_origin.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from os import PathLike
from types import MappingProxyType
from typing import Final

from delegraph.errors import InvalidExternalData
from delegraph.lazy_dataclass import dataclass, replace
from delegraph.program._generated import flat_tensor_tables as tables
from delegraph.program.buffers import byte_view
from delegraph.program.checks import field_checks
from delegraph.program.checks.field_checks import Violations, under
from delegraph.program.checks.verify import MAX_ALIGNMENT
from delegraph.program.checks.verify_values import geometry_violations
from delegraph.program.dtypes import nbytes
from delegraph.program.files.atomic_file import write_atomically
from delegraph.program.files.byte_order import refuse_big_endian
from delegraph.program.files.header import WEIGHTS_IDENTIFIER
from delegraph.program.files.segment_source import (
    SegmentReader,
    SegmentSource,
    load,
    read_segment_table,
    segment_source,
)
from delegraph.program.files.segments import SegmentLayout, align_up
from delegraph.program.flatbuffer.builder import build, rows
from delegraph.program.flatbuffer.reader import FlatBufferReader
from delegraph.program.flatbuffer.record_codec import RecordCodec
from delegraph.program.schema import Buffer, ScalarType
from delegraph.program.weights_origin import FILE_KEY, WeightsOrigin, read_origin

__all__ = [
    "ExternalData",
    "FlatTensor",
    "TensorLayout",
    "deserialize_flat_tensor",
    "serialize_flat_tensor",
    "write_flat_tensor",
]

IDENTIFIER: Final = WEIGHTS_IDENTIFIER
MAGIC: Final = b"FH01"
LENGTH: Final = 40
PADDED_LENGTH: Final = 48
SEGMENT_ALIGNMENT: Final = 128
_HEADER: Final = struct.Struct("<4sIQQQQ")


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """How the bytes of a tensor are laid out: dense, with `dim_order` from outer to inner."""

    scalar_type: ScalarType
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.scalar_type.name}{list(self.sizes)} in dim order {list(self.dim_order)}"


@dataclass(frozen=True, slots=True)
class ExternalData:
    """The bytes under one key. `tensor_layout` is None for a delegate's blob; `alignment` in bytes is not read back."""

    data: Buffer
    tensor_layout: TensorLayout | None = None

    def __repr__(self) -> str:
        return f"ExternalData({memoryview(self.data).nbytes:,} bytes, {self.tensor_layout})"

    alignment: int = 1


@dataclass(frozen=True, slots=True)
class FlatTensor:
    """A whole `.ptd`: tensors by fully qualified name, and delegates' blobs by key.

    `origin` is the lowering that wrote it, and `name` its name there; None and "" if unknown.
    """

    named_data: Mapping[str, ExternalData]
    version: int = 0
    origin: WeightsOrigin | None = None
    name: str = ""

    def __repr__(self) -> str:
        total = sum(memoryview(entry.data).nbytes for entry in self.named_data.values())
        return f"FlatTensor({len(self.named_data)} keys; {total:,} bytes)"


# ---- records -> bytes ------------------------------------------------------------------------------


def serialize_flat_tensor(flat_tensor: FlatTensor, segment_alignment: int = SEGMENT_ALIGNMENT) -> bytes:
    """The bytes of a `.ptd`. Raises `InvalidExternalData`, with every violation, if they could not be relied on."""
    return b"".join(flat_tensor_pieces(flat_tensor, segment_alignment))


def write_flat_tensor(
    flat_tensor: FlatTensor, path: str | PathLike[str], segment_alignment: int = SEGMENT_ALIGNMENT
) -> None:
    """Write a `.ptd` to `path`: whole or not at all. Raises `InvalidExternalData` and `OSError`."""
    write_atomically(path, flat_tensor_pieces(flat_tensor, segment_alignment))


def flat_tensor_pieces(flat_tensor: FlatTensor, segment_alignment: int = SEGMENT_ALIGNMENT) -> Iterator[Buffer]:
    """The file's bytes in order, without a second copy of its data. Raises as `serialize_flat_tensor`."""
    refuse_big_endian()
    _verify(flat_tensor)
    layout = SegmentLayout(segment_alignment)
    named = _entries(flat_tensor)
    segments = layout.add_distinct([(byte_view(entry.data), entry.alignment) for entry in named.values()])
    named_rows = [
        (key, segment, entry.tensor_layout and _CODEC.encode("TensorLayout", entry.tensor_layout))
        for (key, entry), segment in zip(named.items(), segments, strict=True)
    ]
    root = (tables.FLAT_TENSOR, (flat_tensor.version, layout.table(), rows(tables.NAMED_DATA, named_rows)))
    flatbuffer = build(bytes(4) + IDENTIFIER + bytes(PADDED_LENGTH), root)
    base = align_up(len(flatbuffer), layout.base_alignment)
    _HEADER.pack_into(flatbuffer, 8, MAGIC, LENGTH, PADDED_LENGTH, len(flatbuffer) - PADDED_LENGTH, base, layout.size)
    yield flatbuffer
    yield bytes(base - len(flatbuffer))
    yield from layout.pieces()


def _entries(flat_tensor: FlatTensor) -> Mapping[str, ExternalData]:
    """The file's data by key, its origin as well."""
    if flat_tensor.origin is None:
        return flat_tensor.named_data
    return {**flat_tensor.named_data, FILE_KEY + flat_tensor.name: ExternalData(flat_tensor.origin.to_bytes())}


# ---- bytes -> records ------------------------------------------------------------------------------


def deserialize_flat_tensor(source: Buffer | SegmentSource) -> FlatTensor:
    """The tensors and blobs in `source`, as read-only memoryviews into it.

    Raises `InvalidExternalData`, and from a source of segments whatever its `load` raises.
    """
    source = segment_source(source)
    tables_end, base, data_size = _read_header(source)
    reader = FlatBufferReader(load(source, 0, tables_end, InvalidExternalData), InvalidExternalData)
    version, segment_table, named_data = reader.table(tables.FLAT_TENSOR, reader.root())
    if version != 0:
        raise InvalidExternalData(f"version is {version}; this version of Delegraph reads .ptd files of version 0")
    segments = SegmentReader(source, base, data_size, read_segment_table(reader, segment_table), InvalidExternalData)
    named: dict[str, ExternalData] = {}
    for index, position in enumerate(reader.tables(named_data)):
        key_at, segment_index, layout = reader.table(tables.NAMED_DATA, position)
        key = reader.string(key_at)
        if key in named:
            raise InvalidExternalData(f"named_data[{index}].key is {key!r}, which an earlier entry has too")
        data = segments.segment(segment_index, f"named_data[{index}].segment_index")
        named[key] = ExternalData(data, None if layout is None else _CODEC.decode("TensorLayout", reader, layout))
    flat_tensor = FlatTensor(MappingProxyType(named), version)
    _verify(flat_tensor)
    return _with_origin(flat_tensor, named)


def _with_origin(flat_tensor: FlatTensor, named: dict[str, ExternalData]) -> FlatTensor:
    """The file, its origin taken out of the entries `named`."""
    key = next((key for key in named if key.startswith(FILE_KEY)), None)
    if key is None:
        return flat_tensor
    origin = read_origin(named.pop(key).data, key, InvalidExternalData)
    return replace(flat_tensor, origin=origin, name=key.removeprefix(FILE_KEY))


def _read_header(source: SegmentSource) -> tuple[int, int, int]:
    """Where the tables end, where the segments begin, and how many bytes these have."""
    size = source.size()
    head = load(source, 0, min(8 + LENGTH, size), InvalidExternalData)
    if bytes(head[4:8]) != IDENTIFIER or bytes(head[8:12]) != MAGIC or len(head) < 8 + LENGTH:
        raise InvalidExternalData(
            f"not a .ptd: it begins with {bytes(head[4:12])!r} at byte 4, not {IDENTIFIER + MAGIC!r}, "
            f"or ends within its header ({size} bytes)"
        )
    _, length, offset, tables_size, base, data_size = _HEADER.unpack_from(head, 8)
    if length < LENGTH or offset + tables_size > size or base + data_size > size:
        raise InvalidExternalData(
            f"the header (of {length} bytes) lets the tables end at byte {offset + tables_size} and the segments at "
            f"byte {base + data_size} in a file of {size} bytes; was the file truncated?"
        )
    return offset + tables_size, base, data_size


_CODEC: Final = RecordCodec(tables, {"TensorLayout": TensorLayout, "ScalarType": ScalarType})


# ---- checks ----------------------------------------------------------------------------------------


def _verify(flat_tensor: FlatTensor) -> None:
    violations = [
        violation for key, entry in flat_tensor.named_data.items() for violation in _entry_violations(key, entry)
    ]
    if violations:
        raise InvalidExternalData(
            f"the .ptd has {len(violations)} violation(s):" + "".join(f"\n  {f}" for f in violations[:20])
        )


def _entry_violations(key: str, entry: ExternalData) -> Violations:
    path = f"named_data[{key!r}]"
    yield from under(path, field_checks.name(key))
    yield from under(f"{path}.alignment", field_checks.integer(entry.alignment, (1, MAX_ALIGNMENT)))
    layout = entry.tensor_layout
    if layout is None:
        return
    wrong = tuple(geometry_violations(layout.scalar_type, layout.sizes, layout.dim_order))
    yield from under(f"{path}.tensor_layout", wrong)
    needed = 0 if wrong else nbytes(layout.scalar_type, layout.sizes)
    if memoryview(entry.data).nbytes < needed:
        yield f"{path}.data: has {memoryview(entry.data).nbytes} bytes, its tensor_layout needs {needed}"
