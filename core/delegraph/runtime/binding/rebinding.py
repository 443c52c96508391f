"""A delegate's call, some of whose arguments lie elsewhere in each run -> bound calls, kept by where those lie.

    run 1   x at 0x1000   bind(x, out) -> call, kept
    run 2   x at 0x2000   bind(x, out) -> call, kept
    run 3   x at 0x1000   the first call

A bound call holds addresses, not the caller's arrays: it is called only while an array of the same shape and layout is
passed that lies there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from delegraph.interfaces.kernel import BoundCall
from delegraph.runtime.values.values import Array, gatherer

if TYPE_CHECKING:
    from delegraph.interfaces.backend import Argument

__all__ = ["bound_by_address"]

KEPT: Final = 4
"""For so many places the bound calls are kept: a camera's few buffers, or two arrays that are filled in turns."""


def bound_by_address(
    slots: list[Any], indices: Sequence[int], moving: Sequence[int], bind: Callable[[Sequence[Argument]], BoundCall]
) -> BoundCall:
    """A call with the arguments in `slots` at `indices`. Those at positions `moving` are arrays of one shape and layout
    each; all others are the same in every run. `bind(args)` gives a call with the arguments in it.
    """
    gather = gatherer(indices)
    known: dict[tuple[int, ...], BoundCall] = {}

    def run() -> None:
        args = gather(slots)
        key = tuple([args[position].ctypes.data for position in moving])
        call = known.get(key)
        if call is None:
            if len(known) == KEPT:  # the oldest: dicts keep the order of insertion
                known.pop(next(iter(known)))
            call = known[key] = bind([_unowned(arg) if i in moving else arg for i, arg in enumerate(args)])
        call()

    return run


def _unowned(array: Array) -> Array:
    """The same array, which does not keep the memory alive."""
    # An array over a bare address has no base, so a kept call does not keep the caller's array alive.
    memory: Any = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    same: Array = np.ndarray(array.shape, array.dtype, memory, 0, array.strides)
    same.flags.writeable = array.flags.writeable
    return same
