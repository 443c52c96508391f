"""What onnxruntime raised in a run, and what it was given -> what is raised: who gave a place that is not there, is
told which, and how many there are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from numpy.typing import NDArray

from delegraph.errors import Internal, InvalidArgument, RuntimeFault
from delegraph_cpu.blob import Blob, PlacesInfo

__all__ = ["UnusableValue", "fault_of"]


class UnusableValue(InvalidArgument):
    """An input holds a number for which the model has no result: a place beyond a tensor, a divisor that is 0."""


def fault_of(error: Exception, blob: Blob, inputs: Sequence[NDArray[Any] | None]) -> RuntimeFault:
    """For what was raised when the graph of `blob` ran on `inputs`, in the order of its header."""
    given = {info.name: array for info, array in zip(blob.inputs, inputs, strict=False) if array is not None}
    beyond = (_beyond(places, given[places.input]) for places in blob.places if places.input in given)
    told = next(filter(None, beyond), None) or _told(str(error))
    if told is None:
        return Internal(f"onnxruntime failed in a delegate of CpuBackend: {error}")
    return UnusableValue(told)


def _beyond(places: PlacesInfo, array: NDArray[Any]) -> str | None:
    """The first place that is not there."""
    if array.dtype.kind != "i" or not array.size:
        return None
    lowest = -places.size if places.from_end else 0
    wrong = array[(array < lowest - places.first) | (array >= places.size - places.last)]
    if not len(wrong):
        return None
    number = int(wrong[0])
    place = number + places.first
    place = place if place < lowest else max(place, places.size)
    tensor = f"{places.tensor!r:.80}" if places.tensor else "the tensor that it is for"
    there = f"it has {places.size} places, {lowest} to {places.size - 1}"
    return f"input {places.input!r:.80} holds {number}, but {tensor} has no place {place}: {there}"


def _told(message: str) -> str | None:
    for pattern, told in _CAUSES:
        found = re.search(pattern, message)
        if found is not None:
            return told.format(*found.groups(), message=message)
    return None


_CAUSES: Final = (
    (r"Integer (?:division|modulo) by zero", "an integer is divided by 0, in {message}"),
    (r"(?:indice = |index = |idx=|Actual value is )(-?\d+)", "there is no place {0}, in {message}"),
)
"""How onnxruntime (1.31) says what was given: its message, and ours."""
