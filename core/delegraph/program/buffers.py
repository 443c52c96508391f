"""Buffers of bytes: views of them without a copy."""

from __future__ import annotations

from typing import Final

from delegraph.program.schema import Buffer

_AT_ONCE: Final = 1 << 20
"""Bytes that are compared together: of memoryviews Python compares one after the other."""


def byte_view(buffer: Buffer) -> memoryview:
    """`buffer` as a flat read-only memoryview of bytes, uncopied. `buffer` must be C-contiguous."""
    view = memoryview(buffer)
    return (view.cast("B") if view.nbytes else memoryview(b"")).toreadonly()


def are_equal(buffer: Buffer, other: Buffer) -> bool:
    """Whether two buffers have the same bytes."""
    if buffer is other:
        return True
    view, beside = byte_view(buffer), byte_view(other)
    starts = range(0, view.nbytes, _AT_ONCE)
    return view.nbytes == beside.nbytes and all(
        bytes(view[start : start + _AT_ONCE]) == bytes(beside[start : start + _AT_ONCE]) for start in starts
    )
