"""Loads of the same memory with the same options -> one session for all of them: its packed weights are there once.

Two loads of a mapped file are handed the same memory, as are two of the same bytes. Nothing is hashed for that: a
session keeps the memory that it was made of, so that nothing else lies there as long as the session is in use.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from delegraph.interfaces import Buffer
from delegraph_cpu.blob import Blob
from delegraph_cpu.runtime.open_session import Session

__all__ = ["Opened", "opened_once"]


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Opened:
    """A blob's session. It reads `memory`, the weights, without owning it; `made_of` are the bytes of the program."""

    session: Session
    blob: Blob
    memory: tuple[NDArray[Any], ...]
    made_of: tuple[Buffer, ...] = ()


_in_use: Final[WeakValueDictionary[Hashable, Opened]] = WeakValueDictionary()


def opened_once(
    processed: Buffer, named_data: Mapping[str, Buffer], choices: Hashable, make: Callable[[], Opened]
) -> Opened:
    """The result of `make` on the memory, or that of an earlier call, for a delegate with the same choices which is
    still there.

    With None for choices it is the delegate's own, and so it is of memory that its owner may write to: the next program
    may lie in the same array. Two threads at the same time may make two."""
    made_of = (processed, *named_data.values())
    if choices is None or not all(map(_is_constant, made_of)):
        return make()
    key = (_places([processed]), tuple(named_data), _places(named_data.values()), choices)
    return _in_use.get(key) or _in_use.setdefault(key, make())


def _is_constant(data: Buffer) -> bool:
    """Whether it is of bytes or, read-only, of a file."""
    view = memoryview(data)
    return view.readonly and isinstance(view.obj, bytes | mmap.mmap)


def _places(pieces: Iterable[Buffer]) -> tuple[tuple[int, int], ...]:
    arrays = [np.frombuffer(piece, np.uint8) for piece in pieces]
    return tuple((array.ctypes.data, array.nbytes) for array in arrays)
