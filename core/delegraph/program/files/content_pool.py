"""Buffers -> each content once, by number: for constants, named data and segments alike.

A buffer is hashed (SHA-256), once, only where another one of its size and beginning is there; the same object met again
costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from delegraph.program.buffers import byte_view
from delegraph.program.schema import Buffer

__all__ = ["ContentPool", "first_equals"]

_HEAD: Final = 64
"""Bytes that are compared before any hash: equal-sized buffers that differ there are never hashed."""


class ContentPool:
    """`buffers` are the distinct ones, in the order in which they came."""

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self._objects: dict[int, tuple[Buffer, int]] = {}  # by id; the object is held, so that its id stays its own
        self._first_alike: dict[tuple[int, bytes], int] = {}
        self._hashed: set[int] = set()
        self._by_digest: dict[bytes, int] = {}

    def add(self, data: Buffer) -> int:
        """The number of the buffer with this content, which is kept if it is new."""
        known = self._objects.get(id(data))
        if known is None:
            known = self._objects[id(data)] = (data, self._number(data))
        return known[1]

    def _number(self, data: Buffer) -> int:
        view = byte_view(data)
        key = (view.nbytes, bytes(view[:_HEAD]))
        alike = self._first_alike.get(key)
        if alike is None:
            self._first_alike[key] = self._append(data)
            return self._first_alike[key]
        if alike not in self._hashed:
            self._hashed.add(alike)
            self._by_digest.setdefault(_digest(byte_view(self.buffers[alike])), alike)
        digest = _digest(view)
        if digest not in self._by_digest:
            self._by_digest[digest] = self._append(data)
        return self._by_digest[digest]

    def _append(self, data: Buffer) -> int:
        self.buffers.append(data)
        return len(self.buffers) - 1


def first_equals(buffers: Iterable[Buffer]) -> list[int]:
    """For each buffer the index of the first one with the same bytes."""
    pool = ContentPool()
    first: dict[int, int] = {}
    return [first.setdefault(pool.add(data), index) for index, data in enumerate(buffers)]


def _digest(view: memoryview) -> bytes:
    import hashlib  # only who writes files pays for it

    return hashlib.sha256(view).digest()
