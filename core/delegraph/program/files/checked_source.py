"""A sealed file -> its content, a source of segments that finds damage."""

from __future__ import annotations

from functools import cached_property
from zlib import crc32

import numpy as np

from delegraph.errors import RuntimeFault
from delegraph.program.buffers import byte_view
from delegraph.program.files.seal import Seal
from delegraph.program.files.segment_source import SegmentSource, load
from delegraph.program.schema import Buffer

__all__ = ["CheckedSource"]


class CheckedSource:
    """The content that `seal` is of, checked when it is loaded; no byte of the seal is part of it.

    With `in_place`, `source` gives the same memory each time: then a chunk is checked once, and a load of more than a
    chunk not before its data are passed to `check`, so that a mapped file is not read before its use. What begins at
    byte 0, the flatbuffer, is checked when it is loaded in any case. Raises `error` for damage.
    """

    def __init__(self, source: SegmentSource, seal: Seal, in_place: bool, error: type[RuntimeFault]) -> None:
        self._source = source
        self._seal = seal
        self._in_place = in_place
        self._error = error
        self._is_checked = bytearray(len(seal.checksums))
        self._edge = -1, memoryview(b"")  # the chunk that was read last because a load ended or began within it

    def size(self) -> int:
        """The content's bytes."""
        return self._seal.content_nbytes

    def load(self, offset: int, size: int) -> Buffer:
        """`size` bytes from `offset` on. Raises the error if one of them is damaged and it is known by now."""
        data = self._source.load(offset, size)
        if not self._in_place:
            self._check_read(offset, byte_view(data))
        elif offset == 0 or size <= self._seal.chunk_nbytes:
            self._check_once(self._chunks(offset, size))
        return data

    @property
    def is_checked(self) -> bool:
        """Whether `check` has nothing left to do, whatever is passed to it."""
        return not self._in_place or 0 not in self._is_checked

    def check(self, data: Buffer) -> bool:
        """Check data that were loaded, unless that has been done; whether it was done now. Raises the error.

        Data from elsewhere are none of its business.
        """
        view = byte_view(data)
        offset = _address(view) - self._address
        if self.is_checked or not 0 <= offset <= offset + len(view) <= self.size():
            return False
        return self._check_once(self._chunks(offset, len(view)))

    def check_all(self) -> None:
        """Check the whole content, if the source gives the same memory each time. Raises the error."""
        if self._in_place:
            self._check_once(range(len(self._is_checked)))

    @cached_property
    def _address(self) -> int:
        return _address(byte_view(self._source.load(0, self.size())))

    def _chunks(self, offset: int, size: int) -> range:
        """The chunks that these bytes are of."""
        return range(offset // self._seal.chunk_nbytes, -(-(offset + size) // self._seal.chunk_nbytes))

    def _check_once(self, chunks: range) -> bool:
        unchecked = [index for index in chunks if not self._is_checked[index]]
        for index in unchecked:
            self._compare(index, crc32(self._chunk(index)))
            self._is_checked[index] = 1
        return bool(unchecked)

    def _check_read(self, offset: int, data: memoryview) -> None:
        """Check the chunks that `data`, which begin at `offset`, are of: what they lack of the outer ones is read."""
        chunk_nbytes, end = self._seal.chunk_nbytes, offset + len(data)
        for index in self._chunks(offset, len(data)):
            first, last = index * chunk_nbytes, min((index + 1) * chunk_nbytes, self._seal.content_nbytes)
            before = self._edge_chunk(index)[: offset - first] if first < offset else b""
            behind = self._edge_chunk(index)[end - first :] if end < last else b""
            here = data[max(first - offset, 0) : last - offset]
            self._compare(index, crc32(behind, crc32(here, crc32(before))))

    def _edge_chunk(self, index: int) -> memoryview:
        edge = self._edge  # taken once: another thread may set it
        if edge[0] != index:
            self._edge = edge = index, self._chunk(index)
        return edge[1]

    def _chunk(self, index: int) -> memoryview:
        first = index * self._seal.chunk_nbytes
        return load(self._source, first, min(self._seal.chunk_nbytes, self._seal.content_nbytes - first), self._error)

    def _compare(self, index: int, checksum: int) -> None:
        if checksum != self._seal.checksums[index]:
            first = index * self._seal.chunk_nbytes
            end = min(first + self._seal.chunk_nbytes, self._seal.content_nbytes)
            raise self._error(
                f"the file is damaged: the checksum of its bytes {first:,} to {end:,} is another than when it was"
                " written; get it again, or lower the model again"
            )


def _address(view: memoryview) -> int:
    return np.frombuffer(view, np.uint8).ctypes.data if view else 0
