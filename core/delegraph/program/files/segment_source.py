"""A source of bytes -> the segments that a `.pte` or `.ptd` keeps after its flatbuffer, range-checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from delegraph.errors import RuntimeFault
from delegraph.program._generated.program_tables import DATA_SEGMENT
from delegraph.program.buffers import byte_view
from delegraph.program.flatbuffer.reader import FlatBufferReader
from delegraph.program.schema import Buffer


class SegmentSource(Protocol):
    """Bytes that are loaded in parts: a file, a mapping, flash memory."""

    def load(self, offset: int, size: int) -> Buffer:
        """`size` bytes from `offset` on, valid for the program's life."""

    def size(self) -> int:
        """How many bytes there are."""


class _InMemory:
    """A buffer as a source of segments."""

    def __init__(self, buffer: memoryview) -> None:
        self._buffer = buffer

    def load(self, offset: int, size: int) -> memoryview:
        return self._buffer[offset : offset + size]

    def size(self) -> int:
        return len(self._buffer)


def segment_source(source: Buffer | SegmentSource) -> SegmentSource:
    """`source`, or a source over it if it is a buffer."""
    return cast(SegmentSource, source) if hasattr(source, "load") else _InMemory(byte_view(source))


def load(source: SegmentSource, offset: int, size: int, error: type[RuntimeFault]) -> memoryview:
    """`size` bytes from `offset` on, read-only. Raises `error` if the source gives another number of bytes."""
    view = byte_view(source.load(offset, size))
    if len(view) != size:
        raise error(
            f"the source gave {len(view)} of the {size} bytes from byte {offset} on; was the file truncated meanwhile?"
        )
    return view


class SegmentReader:
    """The segments of one file, loaded when they are asked for."""

    def __init__(
        self,
        source: SegmentSource,
        base: int,
        data_size: int,
        segments: Sequence[tuple[int, int]],
        error: type[RuntimeFault],
    ) -> None:
        """`segments` are (offset, size) in bytes within the `data_size` bytes from `base` on.

        Raises `error` if one lies outside, or two share a byte.
        """
        self._source = source
        self._base = base
        self._segments = segments
        self._error = error
        _check(segments, data_size, error)

    def require(self, index: int, where: str) -> None:
        """Raise the error, naming the field `where` that refers to it, if there is no segment of that index."""
        if index >= len(self._segments):
            raise self._error(f"{where} is {index}; the file has {len(self._segments)} segments")

    def segment(self, index: int, where: str) -> memoryview:
        """The segment of that index. Raises as `require`."""
        self.require(index, where)
        offset, size = self._segments[index]
        return load(self._source, self._base + offset, size, self._error) if size else memoryview(b"")


def read_segment_table(reader: FlatBufferReader, position: int | None) -> list[tuple[int, int]]:
    """The (offset, size) of each `DataSegment` in a vector of them."""
    return [(offset, size) for offset, size in (reader.table(DATA_SEGMENT, at) for at in reader.tables(position))]


def _check(segments: Sequence[tuple[int, int]], data_size: int, error: type[RuntimeFault]) -> None:
    end, last = 0, -1
    for (offset, size), index in sorted(zip(segments, range(len(segments)), strict=True)):
        if offset + size > data_size:
            raise error(
                f"segments[{index}] ends at byte {offset + size} of {data_size} bytes of segment data; "
                "the file is damaged, or its end is missing"
            )
        if size and offset < end:
            raise error(f"segments[{index}] begins at byte {offset}, within segments[{last}]")
        end, last = (offset + size, index) if size else (end, last)
