"""A call's arguments -> its arrays, where they are what the device's program takes and gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import Internal
from delegraph.interfaces import Argument, split_arguments

__all__ = ["ArrayLike", "arrays_of"]


class ArrayLike(Protocol):
    """What says of an array what it has to be: another array, or a program's own record."""

    @property
    def dtype(self) -> np.dtype[Any] | str:
        """Its dtype, or what NumPy calls it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""


def arrays_of(
    backend_id: str, args: Sequence[Argument], inputs: Sequence[ArrayLike], outputs: Sequence[ArrayLike]
) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """The inputs and the outputs among `args`. Raises `Internal` for another number, dtype or shape of them."""
    given, results = split_arguments(backend_id, args, len(inputs), len(outputs))
    return _checked(backend_id, "an input", given, inputs), _checked(backend_id, "an output", results, outputs)


def _checked(backend_id: str, what: str, args: Sequence[Argument], wanted: Sequence[ArrayLike]) -> list[NDArray[Any]]:
    arrays = []
    for argument, like in zip(args, wanted, strict=True):
        if not isinstance(argument, np.ndarray) or argument.shape != like.shape or argument.dtype != like.dtype:
            found = f"{argument.dtype} {argument.shape}" if isinstance(argument, np.ndarray) else f"{argument!r:.40}"
            raise Internal(f"{what} of a delegate of {backend_id} is {like.dtype} {like.shape}, not {found}")
        arrays.append(argument)
    return arrays
