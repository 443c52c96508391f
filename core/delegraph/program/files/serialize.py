"""Program -> the bytes of a `.pte`.

    head | flatbuffer | 0… | segment 0: constants | 0… | mutable data | 0… | delegate blobs | 0… | named data

Segment 0 is always there; the others where the program has such data. Equal blobs share a segment.
`docs/file-format.md` has the format to the byte; order, alignment and omissions follow ExecuTorch's
`exir/_serialize/_program.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from typing import Final

from delegraph.errors import InvalidArgument
from delegraph.lazy_dataclass import dataclass
from delegraph.program._generated import program_tables as tables
from delegraph.program.buffers import byte_view
from delegraph.program.checks.verify import verify_program
from delegraph.program.files.atomic_file import write_atomically
from delegraph.program.files.byte_order import refuse_big_endian
from delegraph.program.files.content_pool import first_equals
from delegraph.program.files.header import ExtendedHeader, pack_head
from delegraph.program.files.segments import SegmentLayout, align_up, concatenate
from delegraph.program.flatbuffer.builder import Table, Tables, Vector, build, numbers, rows
from delegraph.program.flatbuffer.plan_codec import INLINE, SEGMENT, DataReference, encode_plan
from delegraph.program.schema import Buffer, NamedData, Program

FORCE_ALIGN: Final = 16
"""The alignment of inline data in the schema (`force_align`), in bytes."""


@dataclass(frozen=True, slots=True)
class SerializationConfig:
    """Alignments in bytes, each a power of two, and whether delegate blobs leave the flatbuffer.

    `segment_alignment` is of each segment in the file, `constant_tensor_alignment` of each constant in its segment,
    `delegate_alignment` of blobs that stay inline (None: 16). Raises `InvalidArgument` for any other number.
    """

    segment_alignment: int = 128
    constant_tensor_alignment: int = 16
    delegate_alignment: int | None = None
    extract_delegate_segments: bool = True

    def __post_init__(self) -> None:
        for name in ("segment_alignment", "constant_tensor_alignment", "delegate_alignment"):
            value = getattr(self, name)
            if value is not None and (value < 1 or value & (value - 1)):
                raise InvalidArgument(f"SerializationConfig.{name} is {value}; an alignment is a power of two")


def serialize_program(program: Program, config: SerializationConfig = SerializationConfig()) -> bytes:
    """The bytes of `program` as a `.pte`.

    Raises `InvalidProgram`, with every violation and its field path, if a runtime could not rely on the program, and
    `InvalidArgument` if its flatbuffer would exceed 2 GiB.
    """
    return b"".join(program_pieces(program, config))


def write_program(
    program: Program,
    path: str | PathLike[str],
    config: SerializationConfig = SerializationConfig(),
) -> None:
    """Write `program` to `path`: whole or not at all, without a second copy of its data in memory.

    Raises what `serialize_program` raises, and `OSError`.
    """
    write_atomically(path, program_pieces(program, config))


def program_pieces(program: Program, config: SerializationConfig = SerializationConfig()) -> Iterator[Buffer]:
    """The file's bytes in order, without a second copy of its data. Raises as `serialize_program`, before the first."""
    refuse_big_endian()
    verify_program(program)
    layout = SegmentLayout(config.segment_alignment)
    root = _program_table(program, layout, config)
    alignment = max(FORCE_ALIGN, config.constant_tensor_alignment, config.delegate_alignment or FORCE_ALIGN)
    flatbuffer = build(pack_head(ExtendedHeader(0, 0, 0) if layout.size else None, alignment), root)
    if not layout.size:
        yield flatbuffer
        return
    base = align_up(len(flatbuffer), layout.base_alignment)
    head = pack_head(ExtendedHeader(len(flatbuffer), base, layout.size), alignment)
    flatbuffer[4 : len(head)] = head[4:]
    yield flatbuffer
    yield bytes(base - len(flatbuffer))
    yield from layout.pieces()


def _program_table(program: Program, layout: SegmentLayout, config: SerializationConfig) -> Table:
    """The root table; the program's data go to segments in `layout`, in the order that ExecuTorch has them."""
    constants = _constants(program.constants, layout, config.constant_tensor_alignment)
    mutable_data = _mutable_data(program.mutable_data, layout)
    references, inline = _delegate_data(program.delegate_data, layout, config)
    named_data = _named_data(program.named_data, layout)
    return tables.PROGRAM, (
        program.version,
        Tables(lambda plan: encode_plan(plan, references), program.execution_plan),
        rows(tables.BUFFER, ()),
        rows(tables.BACKEND_DELEGATE_INLINE_DATA, inline),
        layout.table(),
        constants,
        mutable_data,
        named_data,
    )


def _constants(constants: Sequence[Buffer], layout: SegmentLayout, alignment: int) -> Table:
    pieces, offsets = concatenate(map(byte_view, constants), alignment)
    return tables.SUBSEGMENT_OFFSETS, (layout.add(*pieces), numbers("Q", offsets))


def _mutable_data(mutable_data: Sequence[Buffer], layout: SegmentLayout) -> Tables | None:
    """Unaligned: a method copies it into planned memory when it is loaded."""
    if len(mutable_data) <= 1:
        return None
    pieces, offsets = concatenate(map(byte_view, mutable_data), 1)
    return rows(tables.SUBSEGMENT_OFFSETS, [(layout.add(*pieces), numbers("Q", offsets))])


def _delegate_data(
    blobs: Sequence[Buffer], layout: SegmentLayout, config: SerializationConfig
) -> tuple[list[DataReference], list[tuple[Vector]]]:
    """A reference to each blob, and the blobs that stay inline: the empty ones, or all."""
    views = [byte_view(blob) for blob in blobs]
    references: list[DataReference] = []
    inline: list[tuple[Vector]] = []
    for index, first in enumerate(first_equals(views)):
        view = views[index]
        if first < index:
            references.append(references[first])
        elif view and config.extract_delegate_segments:
            references.append((SEGMENT, layout.add(view)))
        else:
            references.append((INLINE, len(inline)))
            vector = Vector(view, len(view), config.delegate_alignment or FORCE_ALIGN)
            inline.append((vector,))
    return references, inline


def _named_data(named_data: Mapping[str, NamedData], layout: SegmentLayout) -> Tables | None:
    if not named_data:
        return None
    segments = layout.add_distinct([(byte_view(entry.data), entry.alignment) for entry in named_data.values()])
    return rows(tables.NAMED_DATA, list(zip(named_data, segments, strict=True)))
