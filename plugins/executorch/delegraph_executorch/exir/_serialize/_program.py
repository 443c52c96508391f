"""Program <-> the bytes of a `.pte`, with its data in segments (ExecuTorch `exir/_serialize/_program.py`).

The records here are ExecuTorch's, and nothing is verified: a tool may write what no runtime would take. The program
that lowering writes goes through `delegraph.program.serialize_program`, which refuses that.
"""

from __future__ import annotations

import copy
import json
import math
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from delegraph.errors import InvalidProgram
from delegraph_executorch.exir._serialize.data import (
    Cord,
    DataEntry,
    NamedDataStore,
    NamedDataStoreOutput,
    aligned_size,
    pad_to,
    padding_required,
)
from delegraph_executorch.exir._serialize.file_data import FileBackedData
from delegraph_executorch.exir._serialize.records import (
    _DataclassEncoder,
    _flatbuffer_to_program,
    _program_to_flatbuffer,
)
from delegraph_executorch.exir.schema import (
    BackendDelegateDataReference,
    BackendDelegateInlineData,
    Buffer,
    DataLocation,
    DataSegment,
    NamedData,
    Program,
    SubsegmentOffsets,
)
from delegraph_executorch.exir.tensor import ALIGNMENT

__all__ = ["AlignedData", "Cord", "PTEFile", "deserialize_pte_binary", "serialize_pte_binary"]


@dataclass
class PTEFile:
    """What a `.pte` holds: the program with its constants and delegates in it, and the rest beside it."""

    program: Program
    mutable_data: list[Buffer] | None = None
    named_data: NamedDataStoreOutput | None = None


@dataclass
class AlignedData:
    """Bytes and how they are aligned."""

    data: Cord
    alignment: int

    def __init__(self, data: Cord, alignment: int | None = None) -> None:
        self.data = data
        self.alignment = alignment or 1


def _program_to_json(program: Program) -> str:
    """The program as JSON."""
    return json.dumps(program, cls=_DataclassEncoder)


# ---- the extended header ---------------------------------------------------------------------------


@dataclass
class _ExtendedHeader:
    """Where the flatbuffer ends and the segments are (ExecuTorch `docs/source/pte-file-format.md`)."""

    EXPECTED_MAGIC: ClassVar[bytes] = b"eh00"
    MINIMUM_LENGTH: ClassVar[int] = 24
    EXPECTED_LENGTH: ClassVar[int] = 32
    NUM_HEAD_BYTES: ClassVar[int] = 64

    program_size: int
    segment_base_offset: int
    segment_data_size: int
    magic: bytes = EXPECTED_MAGIC
    length: int = EXPECTED_LENGTH

    @staticmethod
    def from_bytes(data: bytes) -> _ExtendedHeader:
        """The header that `data` begin with, valid or not. Raises ValueError if there are too few."""
        if len(data) < _ExtendedHeader.EXPECTED_LENGTH:
            raise ValueError(f"{len(data)} bytes are not enough for an extended header, which has 32")
        magic, length, program_size, base, data_size = struct.unpack_from("<4sIQQQ", data)
        old = length <= _ExtendedHeader.MINIMUM_LENGTH
        return _ExtendedHeader(program_size, base, 0 if old else data_size, magic, length)

    def is_valid(self) -> bool:
        """Whether it is a header."""
        return self.magic == self.EXPECTED_MAGIC and self.length >= self.MINIMUM_LENGTH

    def to_bytes(self) -> bytes:
        """Its bytes, of the current magic and length."""
        fields = (self.program_size, self.segment_base_offset, self.segment_data_size)
        return struct.pack("<4sIQQQ", self.EXPECTED_MAGIC, self.EXPECTED_LENGTH, *fields)


def _get_extended_header(program_data: bytes) -> _ExtendedHeader | None:
    """The header of a `.pte`, if it has one."""
    if len(program_data) < 8 + _ExtendedHeader.EXPECTED_LENGTH:
        return None
    header = _ExtendedHeader.from_bytes(program_data[8:])
    return header if header.is_valid() else None


def _insert_flatbuffer_header(flatbuffer_data: bytes, magic_regex: str, header_data: bytes) -> bytes:
    """`flatbuffer_data` with `header_data` behind its identifier. Raises ValueError if that is not as it should be."""
    identifier = flatbuffer_data[4:8].decode(errors="replace")
    if len(flatbuffer_data) < 8 or not re.match(magic_regex, identifier):
        raise ValueError(f"the flatbuffer's identifier is {identifier!r}, which does not match {magic_regex!r}")
    root = int.from_bytes(flatbuffer_data[:4], "little") + len(header_data)
    return root.to_bytes(4, "little") + flatbuffer_data[4:8] + header_data + flatbuffer_data[8:]


# ---- program -> bytes ------------------------------------------------------------------------------


def serialize_pte_binary(
    pte_file: PTEFile,
    *,
    extract_delegate_segments: bool = False,
    segment_alignment: int = 128,
    constant_tensor_alignment: int | None = None,
    delegate_alignment: int | None = None,
) -> Cord:
    """The bytes of a `.pte`; `pte_file` is left as it is. Alignments are in bytes, powers of two.

    Raises ValueError where delegates and their data do not fit together.
    """
    program = copy.copy(pte_file.program)
    program.execution_plan = copy.deepcopy(program.execution_plan)
    program.segments = list(program.segments)
    segments = _constant_segments(program, constant_tensor_alignment or ALIGNMENT)
    segments += _mutable_segments(program, pte_file.mutable_data, len(segments))
    if extract_delegate_segments:
        _extract_delegate_segments(program, segments)
    if pte_file.named_data is not None:
        _extract_named_data(program, segments, pte_file.named_data.buffers, pte_file.named_data.pte_data)
    data = _laid_out(program, segments, segment_alignment)
    flatbuffer = _program_to_flatbuffer(
        program,
        constant_tensor_alignment=constant_tensor_alignment,
        delegate_alignment=delegate_alignment,
    )
    if not len(data):
        return Cord(flatbuffer.data)
    header_size = aligned_size(_ExtendedHeader.EXPECTED_LENGTH, flatbuffer.max_alignment)
    program_size = header_size + len(flatbuffer.data)
    base = aligned_size(program_size, segment_alignment)
    header = pad_to(_ExtendedHeader(program_size, base, len(data)).to_bytes(), header_size)
    file = Cord(_insert_flatbuffer_header(flatbuffer.data, r"ET[0-9a-zA-Z][0-9a-zA-Z]", header))
    file.append(bytes(base - program_size))
    file.append(data)
    return file


def _constant_segments(program: Program, alignment: int) -> list[AlignedData]:
    """The constants of `program`, moved out of it; none where it has no place for any."""
    if not program.constant_buffer:
        return []
    data, offsets = _extract_constant_segment(program.constant_buffer, alignment)
    program.constant_buffer, program.constant_segment = [], SubsegmentOffsets(0, offsets)
    return [AlignedData(data)]


def _mutable_segments(program: Program, mutable_data: Sequence[Buffer] | None, index: int) -> list[AlignedData]:
    """What mutable buffers begin with: copied when a method is loaded, so not aligned."""
    data, offsets = _extract_constant_segment(mutable_data or ())
    if not len(data):
        return []
    program.mutable_data_segments = [SubsegmentOffsets(index, offsets)]
    return [AlignedData(data)]


def _extract_constant_segment(
    constant_buffer: Sequence[Buffer], tensor_alignment: int | None = None
) -> tuple[Cord, list[int]]:
    """The buffers in a row, each padded so that the next is aligned (none after the last), and where each begins."""
    data, offsets = Cord(), []
    for buffer in constant_buffer:
        data.append(bytes(padding_required(len(data), tensor_alignment or 1)))
        offsets.append(len(data))
        data.append(bytes(buffer.storage))
    return data, offsets


def _extract_delegate_segments(program: Program, segments: list[AlignedData]) -> None:
    """Move the delegates' data out of `program`, equal ones once; empty ones stay."""
    used: set[int] = set()
    numbers: dict[bytes, int] = {}
    inline: list[BackendDelegateInlineData] = []
    for delegate in (delegate for plan in program.execution_plan for delegate in plan.delegates):
        index = delegate.processed.index
        if delegate.processed.location != DataLocation.INLINE:
            raise ValueError(f"the data of {delegate} are in a segment already; they have to be inline")
        if index >= len(program.backend_delegate_data):
            raise ValueError(f"{delegate} refers to data {index} of {len(program.backend_delegate_data)}")
        used.add(index)
        data = program.backend_delegate_data[index].data
        if not data:
            delegate.processed = BackendDelegateDataReference(DataLocation.INLINE, len(inline))
            inline.append(program.backend_delegate_data[index])
            continue
        if data not in numbers:
            numbers[data] = len(segments)
            segments.append(AlignedData(Cord(data)))
        delegate.processed = BackendDelegateDataReference(DataLocation.SEGMENT, numbers[data])
    if unused := sorted(set(range(len(program.backend_delegate_data))) - used):
        raise ValueError(f"no delegate uses backend_delegate_data {unused}; take them out of the program")
    program.backend_delegate_data = inline


def _extract_named_data(
    program: Program,
    segments: list[AlignedData],
    buffers: Sequence[bytes | FileBackedData],
    name_to_data_entry: Mapping[str, DataEntry],
) -> None:
    """A segment for each buffer that has a name."""
    if program.named_data:
        raise ValueError("the program has named data already")
    numbers: dict[int, int] = {}
    program.named_data = []
    for name, entry in name_to_data_entry.items():
        if entry.buffer_index not in numbers:
            numbers[entry.buffer_index] = len(segments)
            segments.append(AlignedData(Cord(buffers[entry.buffer_index]), entry.alignment))
        program.named_data.append(NamedData(name, numbers[entry.buffer_index]))


def _laid_out(program: Program, segments: Iterable[AlignedData], segment_alignment: int) -> Cord:
    """All segments with zeros between them; `program` learns where each lies."""
    data = Cord()
    for segment in segments:
        data.append(bytes(padding_required(len(data), math.lcm(segment_alignment, segment.alignment))))
        program.segments.append(DataSegment(len(data), len(segment.data)))
        data.append(segment.data)
    return data


# ---- bytes -> program ------------------------------------------------------------------------------


def deserialize_pte_binary(program_data: bytes) -> PTEFile:
    """What the bytes of a `.pte` hold, its data taken back out of the segments.

    Raises `InvalidProgram` for what is not a program, ValueError where it refers to segments that are not there.
    """
    program = _flatbuffer_to_program(program_data)
    header = _get_extended_header(program_data)
    if header is None or not header.segment_base_offset:
        return PTEFile(program)
    return _restore_segments(program, program_data[header.segment_base_offset :])


def _restore_segments(program: Program, segment_data: bytes) -> PTEFile:
    """`program` with the data of its segments in it; `segment_data` begin with the first segment."""
    segments: list[bytes] = []
    for index, segment in enumerate(program.segments):
        if segment.offset + segment.size > len(segment_data):
            raise ValueError(f"segment {index}, {segment}, ends behind the {len(segment_data)} bytes of all segments")
        segments.append(segment_data[segment.offset : segment.offset + segment.size])
    _restore_delegates(program, segments)
    if program.constant_segment.offsets:
        program.constant_buffer = _restore_constants(program.constant_segment, segments)
        program.constant_segment = SubsegmentOffsets(0, [])
    mutable = program.mutable_data_segments or []
    if len(mutable) > 1:
        raise ValueError(f"mutable_data_segments has {len(mutable)} entries; runtimes read one only")
    mutable_data = _restore_constants(mutable[0], segments) if mutable else None
    program.mutable_data_segments = None if mutable else program.mutable_data_segments
    named_data = _restore_named_data(program, segments) if program.named_data else None
    program.named_data, program.segments = [], []
    return PTEFile(program, mutable_data, named_data)


def _segment(segments: Sequence[bytes], index: int, what: str) -> bytes:
    if index >= len(segments):
        raise ValueError(f"{what} refers to segment {index}; the program has {len(segments)}")
    return segments[index]


def _restore_delegates(program: Program, segments: Sequence[bytes]) -> Program:
    for delegate in (delegate for plan in program.execution_plan for delegate in plan.delegates):
        if delegate.processed.location == DataLocation.SEGMENT:
            data = _segment(segments, delegate.processed.index, f"delegate {delegate.id!r}")
            delegate.processed = BackendDelegateDataReference(DataLocation.INLINE, len(program.backend_delegate_data))
            program.backend_delegate_data.append(BackendDelegateInlineData(data))
    return program


def _restore_constants(place: SubsegmentOffsets, segments: Sequence[bytes]) -> list[Buffer]:
    """Each datum reaches to the next one, padding included."""
    data = _segment(segments, place.segment_index, "a segment of constants")
    ends = [*place.offsets[1:], len(data)]
    return [Buffer(data[start:end]) for start, end in zip(place.offsets, ends, strict=True)]


def _restore_named_data(program: Program, segments: Sequence[bytes]) -> NamedDataStoreOutput:
    store = NamedDataStore()
    for entry in program.named_data or []:
        store.add_named_data(entry.key, _segment(segments, entry.segment_index, f"named data {entry.key!r}"))
    return store.get_named_data_store_output()


def _extract_delegate_payload(pte_data: bytes, backend_id: str, delegate_index: int = 0) -> bytes | None:
    """The bytes of delegate `delegate_index` of those whose backend's name contains `backend_id`, in any case."""
    try:
        file = deserialize_pte_binary(pte_data)
    except (InvalidProgram, ValueError):
        return None
    delegates = [delegate for plan in file.program.execution_plan for delegate in plan.delegates]
    found = [delegate for delegate in delegates if backend_id.lower() in delegate.id.lower()]
    if delegate_index >= len(found):
        return None
    return file.program.backend_delegate_data[found[delegate_index].processed.index].data or None
