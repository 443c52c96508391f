"""The bytes of a `.pte` -> Program: the door for files from strangers.

Whatever the bytes are, the result is a program that passed `verify_program`, or `InvalidProgram`. Constants,
blobs and named data stay where they are: the program holds read-only views into the source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Any, cast

from delegraph.errors import InvalidProgram
from delegraph.program._generated import program_tables as tables
from delegraph.program.alternatives import is_alternative
from delegraph.program.checks.verify import verify_program
from delegraph.program.checks.verify_values import MAX_RANK, is_external
from delegraph.program.dtypes import nbytes
from delegraph.program.files.header import HEAD_SIZE, ExtendedHeader, read_head
from delegraph.program.files.segment_source import (
    SegmentReader,
    SegmentSource,
    load,
    read_segment_table,
    segment_source,
)
from delegraph.program.flatbuffer.plan_codec import INLINE, SEGMENT, DataReference, decode_plan
from delegraph.program.flatbuffer.reader import FlatBufferReader
from delegraph.program.schema import (
    Buffer,
    ExecutionPlan,
    NamedData,
    Program,
    Tensor,
)


def deserialize_program(source: Buffer | SegmentSource) -> Program:
    """The program in `source`. Its data are read-only memoryviews into the source, which must outlive them unchanged.

    A source that is no buffer is asked for the head, the flatbuffer, and each segment that the program refers to.
    Raises `InvalidProgram`, and from a source of segments whatever its `load` raises.
    """
    source = segment_source(source)
    size = source.size()
    header = read_head(load(source, 0, min(HEAD_SIZE, size), InvalidProgram), size)
    flatbuffer = load(source, 0, header.program_size if header else size, InvalidProgram)
    program = _Decoder(source, header, FlatBufferReader(flatbuffer, InvalidProgram)).program()
    verify_program(program)
    return program


class BlobsOnDemand(Sequence[Buffer]):
    """A tuple of blobs, of which each is loaded, once, when it is first asked for. Raises then what its load raises."""

    def __init__(self, loads: Sequence[Callable[[], Buffer]]) -> None:
        self._loads = loads
        self._loaded: dict[int, Buffer] = {}

    def __len__(self) -> int:
        return len(self._loads)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self)[index]
        number = range(len(self))[index]
        if number not in self._loaded:
            self._loaded.setdefault(number, self._loads[number]())
        return self._loaded[number]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (tuple, BlobsOnDemand)) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


class _Decoder:
    """Puts a program together from its tables and the segments that they refer to."""

    def __init__(self, source: SegmentSource, header: ExtendedHeader | None, reader: FlatBufferReader) -> None:
        self._reader = reader
        (
            self._version,
            self._plans,
            self._constant_buffer,
            inline_data,
            segments,
            self._constant_segment,
            self._mutable_segments,
            self._named_data,
        ) = reader.table(tables.PROGRAM, reader.root())
        self._segments = SegmentReader(
            source,
            header.segment_base_offset if header else 0,
            _segment_data_size(header, source.size()),
            read_segment_table(reader, segments),
            InvalidProgram,
        )
        self._inline_data = reader.tables(inline_data)
        self._blobs: dict[DataReference, int] = {}  # filled while plans are decoded, read after them

    def program(self) -> Program:
        plans = tuple([decode_plan(self._reader, at, self._blob_index) for at in self._reader.tables(self._plans)])
        # Segments have offsets and no sizes: a datum reaches to the next, padding included, unless a tensor tells more.
        constant_sizes, mutable_sizes = _sizes_in_use(plans)
        return Program(
            execution_plan=plans,
            constants=self._constants(constant_sizes),
            mutable_data=self._mutable_data(mutable_sizes),
            delegate_data=self._delegate_data(any(map(is_alternative, plans))),
            named_data=self._named(),
            version=self._version,
        )

    def _blob_index(self, reference: DataReference) -> int:
        """Delegates that refer to one blob share its index; blobs are numbered in the order of their first use."""
        return self._blobs.setdefault(reference, len(self._blobs))

    def _delegate_data(self, have_alternatives: bool) -> tuple[Buffer, ...]:
        """The blobs; where not all will be used, each is loaded when somebody asks for it."""
        references = tuple(self._blobs)
        if not have_alternatives:
            return tuple([self._blob(*reference) for reference in references])
        for location, index in references:
            if location == SEGMENT:
                self._segments.require(index, "a delegate's processed.index")
            else:
                self._blob(location, index)
        return cast("tuple[Buffer, ...]", BlobsOnDemand([partial(self._blob, *reference) for reference in references]))

    def _blob(self, location: int, index: int) -> memoryview:
        if location == SEGMENT:
            return self._segments.segment(index, "a delegate's processed.index")
        if location != INLINE or index >= len(self._inline_data):
            raise InvalidProgram(
                f"a delegate's data have location {location} and index {index}; "
                f"the program has {len(self._inline_data)} inline blobs"
            )
        (data,) = self._reader.table(tables.BACKEND_DELEGATE_INLINE_DATA, self._inline_data[index])
        return self._reader.view(data)

    def _constants(self, sizes: Mapping[int, int]) -> tuple[Buffer, ...]:
        if self._constant_segment is not None:
            constants = self._subsegments(self._constant_segment, sizes, "constant_segment")
            if constants:
                return constants
        return self._inline_constants()

    def _inline_constants(self) -> tuple[Buffer, ...]:
        """The constants of a file from before there was a constant segment; index 0 is reserved there too."""
        stored = [self._reader.table(tables.BUFFER, at) for at in self._reader.tables(self._constant_buffer)]
        return (b"", *[self._reader.view(storage) for (storage,) in stored[1:]])

    def _mutable_data(self, sizes: Mapping[int, int]) -> tuple[Buffer, ...]:
        segments = self._reader.tables(self._mutable_segments)
        if len(segments) > 1:
            raise InvalidProgram(f"mutable_data_segments has {len(segments)} entries; runtimes read one only")
        return self._subsegments(segments[0], sizes, "mutable_data_segments[0]") if segments else ()

    def _subsegments(self, position: int, sizes: Mapping[int, int], where: str) -> tuple[Buffer, ...]:
        """The data in a segment, each reaching to the next. Padding is cut off where tensors tell their sizes.

        Datum 0 is the placeholder.
        """
        segment_index, at = self._reader.table(tables.SUBSEGMENT_OFFSETS, position)
        offsets = self._reader.vector("Q", at)
        if not offsets:
            return ()
        # offsets 0 0 48, segment of 60 bytes -> data [], [0, 48), [48, 60)
        segment = self._segments.segment(segment_index, f"{where}.segment_index")
        data = [memoryview(b"")]
        for index, (start, end) in enumerate(pairwise((*offsets[1:], len(segment))), start=1):
            if start > end:
                raise InvalidProgram(
                    f"{where}.offsets[{index}] is {start}, beyond the next offset or the segment's end, {end}"
                )
            data.append(segment[start : min(end, start + sizes.get(index, end))])
        return tuple(data)

    def _named(self) -> Mapping[str, NamedData]:
        named: dict[str, NamedData] = {}
        for index, position in enumerate(self._reader.tables(self._named_data)):
            key_at, segment_index = self._reader.table(tables.NAMED_DATA, position)
            key = self._reader.string(key_at)
            if key in named:
                raise InvalidProgram(f"named_data[{index}].key is {key!r}, which an earlier entry has too")
            named[key] = NamedData(self._segments.segment(segment_index, f"named_data[{index}].segment_index"))
        return MappingProxyType(named)


def _segment_data_size(header: ExtendedHeader | None, file_size: int) -> int:
    """Bytes in which segments may lie; bytes after them in the file are not the program's."""
    if header is None or not header.segment_base_offset:
        return 0
    return header.segment_data_size or file_size - header.segment_base_offset


def _sizes_in_use(plans: Sequence[ExecutionPlan]) -> tuple[dict[int, int], dict[int, int]]:
    """The bytes that tensors use of each constant, and of each mutable datum, by data_buffer_idx."""
    constants: dict[int, int] = {}
    mutable: dict[int, int] = {}
    for plan in plans:
        for value in plan.values:
            if type(value) is Tensor and _is_sized(value):
                sizes = constants if value.allocation_info is None else mutable
                index = value.data_buffer_idx
                sizes[index] = max(sizes.get(index, 0), nbytes(value.scalar_type, value.sizes))
    return constants, mutable


def _is_sized(tensor: Tensor) -> bool:
    """Whether the tensor says how long a datum of this file is."""
    return tensor.data_buffer_idx > 0 and len(tensor.sizes) <= MAX_RANK and not is_external(tensor)
