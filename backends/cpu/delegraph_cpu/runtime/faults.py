"""onnxruntime's error in a run, and the run's inputs -> the error that is raised: for an index outside a tensor, it
names the index and the tensor's size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from delegraph.errors import Internal, RuntimeFault
from delegraph.interfaces import UnusableValue, missing_place
from delegraph_cpu.blob import Blob

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["fault_of"]


def fault_of(error: Exception, blob: Blob, inputs: Sequence[NDArray[Any] | None]) -> RuntimeFault:
    """The error for `error`, raised when the graph of `blob` ran on `inputs`, in the order of its header."""
    arrays = {info.name: array for info, array in zip(blob.inputs, inputs, strict=False) if array is not None}
    beyond = (missing_place(places, arrays[places.input]) for places in blob.places if places.input in arrays)
    told = next(filter(None, beyond), None) or _told(str(error))
    if told is None:
        return Internal(f"onnxruntime failed in a delegate: {error}")
    return UnusableValue(told)


def _told(message: str) -> str | None:
    for pattern, told in _CAUSES:
        match = re.search(pattern, message)
        if match is not None:
            return told.format(*match.groups(), message=message)
    return None


_CAUSES: Final = (
    (r"Integer (?:division|modulo) by zero", "an integer is divided by 0, in {message}"),
    (r"(?:indice = |index = |idx=|Actual value is )(-?\d+)", "there is no place {0}, in {message}"),
)
"""Messages of onnxruntime (1.31) about unusable inputs, and ours."""
