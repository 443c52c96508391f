"""Buffers of bytes: views of them without a copy, and which of them are equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from delegraph.program.schema import Buffer


def byte_view(buffer: Buffer) -> memoryview:
    """`buffer` as a flat read-only memoryview of bytes, uncopied. `buffer` must be C-contiguous."""
    view = memoryview(buffer)
    return (view.cast("B") if view.nbytes else memoryview(b"")).toreadonly()


def first_equals(buffers: Sequence[memoryview]) -> list[int]:
    """For each buffer the index of the first one with the same bytes."""
    import hashlib  # only who writes files pays for it

    times = Counter(map(len, buffers))
    first: dict[tuple[int, bytes], int] = {}
    return [
        first.setdefault((len(b), hashlib.sha256(b).digest() if times[len(b)] > 1 else b""), i)
        for i, b in enumerate(buffers)
    ]
