"""Named blocks <-> one blob: header, table of names and sizes, then each block at a multiple of 16 bytes.

    magic "DGMB" | kind (4 bytes) | version u32 | count u32 | {name (16 bytes) | offset u64 | size u64} … | blocks

All numbers are little-endian. The idea (named, aligned blocks, so that a driver maps what it wants) is that of
ExecuTorch's container for Vela, `backends/arm/arm_vela.py`; the layout is our own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from delegraph.errors import DelegateInvalidCompatibility

__all__ = ["read_blocks", "write_blocks"]

_MAGIC: Final = b"DGMB"
_VERSION: Final = 1
_ALIGNMENT: Final = 16
_HEADER: Final = struct.Struct("<4s4sII")
_ENTRY: Final = struct.Struct("<16sQQ")
_MOST_BLOCKS: Final = 256  # a blob names a handful; a table of billions is an attack


def write_blocks(kind: bytes, blocks: Mapping[str, bytes]) -> bytes:
    """One blob of `kind` (4 bytes) with `blocks` in their order. Names are ASCII, up to 16 characters."""
    if len(kind) != 4:
        raise ValueError(f"a kind is 4 bytes, not {kind!r}")
    data = bytearray(_HEADER.pack(_MAGIC, kind, _VERSION, len(blocks)) + bytes(_ENTRY.size * len(blocks)))
    for place, (name, block) in enumerate(blocks.items()):
        encoded = name.encode("ascii")
        if not encoded or len(encoded) > 16:
            raise ValueError(f"a block's name has 1 to 16 characters, not {name!r}")
        data += bytes(-len(data) % _ALIGNMENT)
        _ENTRY.pack_into(data, _HEADER.size + place * _ENTRY.size, encoded, len(data), len(block))
        data += block
    return bytes(data)


def read_blocks(data: bytes | memoryview, kind: bytes) -> dict[str, memoryview]:
    """The blocks of a blob of `kind`, as views of it. Raises `DelegateInvalidCompatibility`, with the offset, for
    anything else."""
    view = memoryview(data).cast("B").toreadonly()
    if len(view) < _HEADER.size:
        raise _error(0, f"{len(view)} bytes are too few for a header")
    magic, found, version, count = _HEADER.unpack_from(view)
    if magic != _MAGIC or found != kind:
        raise _error(0, f"it begins with {bytes(view[:8])!r}, not {_MAGIC + kind!r}")
    if version != _VERSION:
        raise _error(8, f"its version is {version}, this reads {_VERSION}")
    if count > _MOST_BLOCKS or _HEADER.size + count * _ENTRY.size > len(view):
        raise _error(12, f"{count} blocks are more than it can hold")
    blocks: dict[str, memoryview] = {}
    for place in range(count):
        at = _HEADER.size + place * _ENTRY.size
        name = bytes(view[at : at + 16]).rstrip(b"\0")
        _, offset, size = _ENTRY.unpack_from(view, at)
        if not name.isascii() or not name or name.decode("ascii") in blocks:
            raise _error(at, f"{name!r} is not a name of its own")
        if offset % _ALIGNMENT or offset + size > len(view):
            raise _error(at + 16, f"block {name.decode('ascii')!r} of {size} bytes at {offset} is not within the blob")
        blocks[name.decode("ascii")] = view[offset : offset + size]
    return blocks


def _error(offset: int, what: str) -> DelegateInvalidCompatibility:
    return DelegateInvalidCompatibility(f"not a blob of this device: at byte {offset}, {what}")
