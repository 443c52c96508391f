"""The first bytes of a `.pte`: the identifier "ET12" and the extended header, which says where the segments are.

    0   u32     position of the root table            8   "eh00"
    4   "ET12"                                        12  u32   header length: 32 (24 in files from before 1.0)
                                                      16  u64   program size: the flatbuffer's bytes, from byte 0
                                                      24  u64   segment base offset
                                                      32  u64   segment data size (in headers of 32 bytes and more)

The extended header is there only when there is segment data. Format: ExecuTorch `docs/source/pte-file-format.md`.
"""

from __future__ import annotations

import struct
from typing import Final

from delegraph.errors import InvalidProgram
from delegraph.lazy_dataclass import dataclass
from delegraph.program.schema import Buffer

IDENTIFIER: Final = b"ET12"
BUNDLED_IDENTIFIER: Final = b"BP08"
"""Of a `.bpte`, which has a whole `.pte` in it; see `delegraph.devtools.bundled_program`."""
WEIGHTS_IDENTIFIER: Final = b"FT01"
"""Of a `.ptd`; see `delegraph.program.flat_tensor`."""
MAGIC: Final = b"eh00"
LENGTH: Final = 32
OLD_LENGTH: Final = 24
HEAD_SIZE: Final = 64
"""Bytes from the start of a file that hold all of the above, with room to grow."""

_OTHERS: Final = {
    BUNDLED_IDENTIFIER: "it is a bundled program (.bpte), a program with test cases: `delegraph run` verifies it, and"
    " delegraph.devtools.load_bundled_program(…).buffer is the program alone",
    WEIGHTS_IDENTIFIER: "it is a .ptd, the external constants of a program: load the .pte, and this file as its"
    " data_path",
}
"""Other identifiers -> what such a file is, and what to do with it."""

_ARCHIVE: Final = (
    "it is an archive, as torch.save and torch.export.save write them: lower that model, and load what is saved then"
)
_UNKNOWN: Final = "was the file made by another version of the format, or is it something else?"


@dataclass(frozen=True, slots=True)
class ExtendedHeader:
    """Where the flatbuffer ends and the segments lie, in bytes from the start of the file.

    `segment_data_size` is 0 where an old file does not say it.
    """

    program_size: int
    segment_base_offset: int
    segment_data_size: int


def pack_head(header: ExtendedHeader | None, alignment: int) -> bytes:
    """The first bytes of a file, root position left 0: the identifier and the header, padded to `alignment`.

    `alignment` is the largest alignment within the flatbuffer, so that inserting the header breaks none.
    """
    head = bytes(4) + IDENTIFIER
    if header is None:
        return head
    fields = struct.pack(
        "<4sIQQQ", MAGIC, LENGTH, header.program_size, header.segment_base_offset, header.segment_data_size
    )
    return head + fields + bytes(-LENGTH % alignment)


def read_head(head: Buffer, file_size: int) -> ExtendedHeader | None:
    """The extended header in the first `HEAD_SIZE` bytes (or fewer, of a shorter file); None if there is none.

    Raises `InvalidProgram` if this is no `.pte`, or the header names bytes that the file does not have.
    """
    identifier = bytes(head[4:8])
    if identifier != IDENTIFIER:
        what = _ARCHIVE if bytes(head[:4]) == b"PK\x03\x04" else _OTHERS.get(identifier, _UNKNOWN)
        raise InvalidProgram(f"not a .pte: bytes 4 to 8 are {identifier!r}, not {IDENTIFIER!r}; {what}")
    if bytes(head[8:12]) != MAGIC:
        return None
    if len(head) < 8 + LENGTH:
        raise InvalidProgram(f"the file ends within its extended header, after {file_size} bytes; was it truncated?")
    length, program_size, base, data_size = struct.unpack_from("<IQQQ", head, 12)
    if length < OLD_LENGTH:
        raise InvalidProgram(f"the extended header has {length} bytes, fewer than {OLD_LENGTH}; the file is damaged")
    header = ExtendedHeader(program_size, base, data_size if length >= LENGTH else 0)
    _check(header, file_size)
    return header


def _check(header: ExtendedHeader, file_size: int) -> None:
    if not 8 + OLD_LENGTH <= header.program_size <= file_size:
        raise InvalidProgram(
            f"the extended header says that the flatbuffer has {header.program_size} bytes "
            f"in a file of {file_size}; was the file truncated?"
        )
    base = header.segment_base_offset
    if base and base < header.program_size:
        raise InvalidProgram(
            f"the extended header lets the segments begin at byte {base}, "
            f"within the flatbuffer of {header.program_size} bytes; the file is damaged"
        )
    if base + header.segment_data_size > file_size:
        raise InvalidProgram(
            f"the extended header says that the segments end at byte {base + header.segment_data_size} "
            f"in a file of {file_size} bytes; was the file truncated?"
        )
