"""What onnxruntime raised in a run, and what it was given -> what is raised: who gave a place that is not there, is
told which, and how many there are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from numpy.typing import NDArray

from delegraph.errors import Internal, RuntimeFault
from delegraph.interfaces import UnusableValue, missing_place
from delegraph_cpu.blob import Blob

__all__ = ["fault_of"]


def fault_of(error: Exception, blob: Blob, inputs: Sequence[NDArray[Any] | None]) -> RuntimeFault:
    """For what was raised when the graph of `blob` ran on `inputs`, in the order of its header."""
    given = {info.name: array for info, array in zip(blob.inputs, inputs, strict=False) if array is not None}
    beyond = (missing_place(places, given[places.input]) for places in blob.places if places.input in given)
    told = next(filter(None, beyond), None) or _told(str(error))
    if told is None:
        return Internal(f"onnxruntime failed in a delegate of CpuBackend: {error}")
    return UnusableValue(told)


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
