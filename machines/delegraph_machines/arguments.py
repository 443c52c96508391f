"""A call's arguments -> its arrays, checked against the inputs and outputs of the device's program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import Internal
from delegraph.interfaces import Argument, split_arguments

__all__ = ["ArrayLike", "arrays_of"]


class ArrayLike(Protocol):
    """A dtype and a shape that an array must have: another array, or a program's own record."""

    @property
    def dtype(self) -> np.dtype[Any] | str:
        """Its dtype, or NumPy's name of it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""


def arrays_of(
    backend_id: str, args: Sequence[Argument], inputs: Sequence[ArrayLike], outputs: Sequence[ArrayLike]
) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
    """The inputs and the outputs among `args`. Raises `Internal` for another number, dtype or shape of them."""
    taken, results = split_arguments(backend_id, args, len(inputs), len(outputs))
    return _checked(backend_id, "an input", taken, inputs), _checked(backend_id, "an output", results, outputs)


def _checked(backend_id: str, what: str, args: Sequence[Argument], expected: Sequence[ArrayLike]) -> list[NDArray[Any]]:
    arrays = []
    for argument, like in zip(args, expected, strict=True):
        if not isinstance(argument, np.ndarray) or argument.shape != like.shape or argument.dtype != like.dtype:
            actual = f"{argument.dtype} {argument.shape}" if isinstance(argument, np.ndarray) else f"{argument!r:.40}"
            raise Internal(f"{what} of a delegate of {backend_id} is {like.dtype} {like.shape}, not {actual}")
        arrays.append(argument)
    return arrays
