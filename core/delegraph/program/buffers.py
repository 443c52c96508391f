"""Buffers of bytes: views of them without a copy."""

from __future__ import annotations

from delegraph.program.schema import Buffer


def byte_view(buffer: Buffer) -> memoryview:
    """`buffer` as a flat read-only memoryview of bytes, uncopied. `buffer` must be C-contiguous."""
    view = memoryview(buffer)
    return (view.cast("B") if view.nbytes else memoryview(b"")).toreadonly()
