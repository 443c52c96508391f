"""Blobs -> segments: where each lies after the flatbuffer, and the bytes with the padding between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from delegraph.lazy_dataclass import dataclass
from delegraph.program._generated.program_tables import DATA_SEGMENT
from delegraph.program.files.content_pool import first_equals
from delegraph.program.flatbuffer.builder import Tables, rows


@dataclass(frozen=True, slots=True)
class Segment:
    """`offset` and `size` in bytes, the first from the start of all segments; `pieces` are its bytes in order."""

    offset: int
    size: int
    pieces: tuple[memoryview | bytes, ...]


class SegmentLayout:
    """Places segments one after the other, each aligned to the lcm of `alignment` and its own."""

    def __init__(self, alignment: int) -> None:
        self.base_alignment = alignment
        """The alignment that the start of all segments needs, so that the alignment of each one holds in the file."""
        self._alignment = alignment
        self._segments: list[Segment] = []

    @property
    def size(self) -> int:
        """Bytes from the start of the first segment to the end of the last."""
        return self._segments[-1].offset + self._segments[-1].size if self._segments else 0

    def add(self, *pieces: memoryview | bytes, alignment: int = 1) -> int:
        """Append a segment that holds `pieces` without gaps; its index."""
        aligned = math.lcm(self._alignment, alignment)
        self.base_alignment = math.lcm(self.base_alignment, aligned)
        offset = align_up(self.size, aligned)
        self._segments.append(Segment(offset, sum(map(len, pieces)), pieces))
        return len(self._segments) - 1

    def add_distinct(self, blobs: Sequence[tuple[memoryview, int]]) -> list[int]:
        """Append a segment for each distinct blob, aligned as all of its equals ask; the segment's index for each.

        A blob comes with its alignment in bytes.
        """
        firsts = first_equals([data for data, _ in blobs])
        alignments: dict[int, int] = {}
        for first, (_, alignment) in zip(firsts, blobs, strict=True):
            alignments[first] = math.lcm(alignments.get(first, 1), alignment)
        indices = {first: self.add(blobs[first][0], alignment=alignment) for first, alignment in alignments.items()}
        return [indices[first] for first in firsts]

    def table(self) -> Tables:
        """The vector of `DataSegment` tables."""
        return rows(DATA_SEGMENT, [(segment.offset, segment.size) for segment in self._segments])

    def pieces(self) -> Iterator[memoryview | bytes]:
        """The bytes of all segments and the zeros between them."""
        end = 0
        for segment in self._segments:
            yield bytes(segment.offset - end)
            yield from segment.pieces
            end = segment.offset + segment.size


def concatenate(blobs: Iterable[memoryview], alignment: int) -> tuple[list[memoryview | bytes], tuple[int, ...]]:
    """`blobs` in a row, each padded so that the next is aligned (none after the last), and where each one begins."""
    pieces: list[memoryview | bytes] = []
    offsets, end = [], 0
    for blob in blobs:
        offset = align_up(end, alignment)
        pieces += (bytes(offset - end), blob)
        offsets.append(offset)
        end = offset + len(blob)
    return pieces, tuple(offsets)


def align_up(offset: int, alignment: int) -> int:
    """The first multiple of `alignment` from `offset` on."""
    return -(-offset // alignment) * alignment
