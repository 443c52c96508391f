"""An input that holds places of a tensor -> nothing, or which of them that tensor has not: for whoever gave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces.records import Size
from delegraph.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PlacesInfo", "UnusableValue", "missing_place"]


class UnusableValue(InvalidArgument):
    """An input holds a number for which the model has no result: a place beyond a tensor, a divisor that is 0. A class
    of its own tells that the number is the caller's."""


@dataclass(frozen=True, slots=True)
class PlacesInfo:
    """Of a dim of `size`, the places `input + first` to `input + last` are asked for; from the end where
    they are below 0, if `from_end`. `tensor` is its name in the model, if it has one: for messages."""

    input: str
    tensor: str
    size: Size
    first: int = 0
    last: int = 0
    from_end: bool = False


def missing_place(places: PlacesInfo, array: NDArray[Any]) -> str | None:
    """In words, the first place that the integers of an input ask for and that is not there; None: all are."""
    if array.dtype.kind != "i" or not array.size:
        return None
    lowest = -places.size if places.from_end else 0
    if lowest - places.first <= array.min() and array.max() < places.size - places.last:
        return None
    wrong = array[(array < lowest - places.first) | (array >= places.size - places.last)]
    number = int(np.ravel(wrong)[0])
    place = number + places.first
    place = place if place < lowest else max(place, places.size)
    tensor = f"{places.tensor!r:.80}" if places.tensor else "the tensor that it is for"
    there = f"it has {places.size} places, {lowest} to {places.size - 1}"
    return f"input {places.input!r:.80} holds {number}, but {tensor} has no place {place}: {there}"
