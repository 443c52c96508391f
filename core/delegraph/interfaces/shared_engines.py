"""Loads of the same memory with the same options -> one engine for all of them: its packed weights are there once.

Two loads of a mapped file are handed the same memory, as are two of the same bytes, and two methods that have one blob.
Nothing is hashed for that: an engine keeps the memory that it was made of, so that nothing else lies there as long as
the engine is in use.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from delegraph.program.schema import Buffer

__all__ = ["SharedEngines"]

E = TypeVar("E")


class SharedEngines(Generic[E]):
    """The engines of a backend that are in use, by the memory that they were made of. `E` is hashable by identity and
    can be weakly referenced."""

    def __init__(self) -> None:
        self._in_use: WeakValueDictionary[Hashable, E] = WeakValueDictionary()
        self._made_of: WeakKeyDictionary[E, tuple[Buffer, ...]] = WeakKeyDictionary()

    def opened(
        self, processed: Buffer, named_data: Mapping[str, Buffer], choices: Hashable, make: Callable[[], E]
    ) -> E:
        """The result of `make` on the memory, or that of an earlier call, for a delegate with the same choices which is
        still there.

        With None for choices it is the delegate's own, and so it is of memory that its owner may write to: the next
        program may lie in the same array. Two threads at the same time may make two."""
        made_of = (processed, *named_data.values())
        if choices is None or not all(map(_is_constant, made_of)):
            return make()
        key = (_places([processed]), tuple(named_data), _places(named_data.values()), choices)
        engine = self._in_use.get(key)
        if engine is None:
            engine = self._in_use.setdefault(key, make())
            self._made_of[engine] = made_of
        return engine


def _is_constant(data: Buffer) -> bool:
    """Whether it is of bytes or, read-only, of a file."""
    view = memoryview(data)
    return view.readonly and isinstance(view.obj, bytes | mmap.mmap)


def _places(pieces: Iterable[Buffer]) -> tuple[tuple[int, int], ...]:
    arrays = [np.frombuffer(piece, np.uint8) for piece in pieces]
    return tuple((array.ctypes.data, array.nbytes) for array in arrays)
