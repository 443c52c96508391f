"""An engine with threads, and a fork -> the engine is left to the parent: a child has its memory, not its threads.

Used in the child, such an engine waits for threads that are not there, and so it does where it is destroyed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, Final
from weakref import ref

__all__ = ["leave_at_fork"]

_OWNERS: Final[dict[ref[object], Callable[[object], object]]] = {}


def leave_at_fork(leave: Callable[[], object]) -> None:
    """Call `leave`, a method of the engine's owner, in each child of this process that a fork makes.

    It gives the engine up, so that the owner makes another one when it is next asked, or refuses; and it returns what
    it gave up, which is never destroyed in that process. It takes no locks. The owner is hashable, and is not kept.
    """
    method: Any = leave
    _OWNERS[ref(method.__self__, _OWNERS.pop)] = method.__func__


def _leave_all() -> None:
    for owner, leave in list(_OWNERS.items()):
        alive = owner()
        if alive is not None:
            # Not even the interpreter's end destroys what has a reference that nobody holds.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(leave(alive)))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all)
