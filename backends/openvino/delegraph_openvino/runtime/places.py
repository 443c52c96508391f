"""An input whose elements pick places of a tensor -> nothing, or an error that tells the place that is not there."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from delegraph.errors import InvalidArgument
from delegraph_openvino.blob import Places

__all__ = ["UnusableValue", "check_places"]


class UnusableValue(InvalidArgument):
    """An input holds a number for which the model has no result. A class of its own tells that it is the caller's."""


def check_places(places: Places, array: NDArray[Any]) -> None:
    """Raise `UnusableValue` for a place that is not there, where OpenVINO picks zeros. As unsigned numbers, those below
    0 are large."""
    if not array.size or array.view(f"u{array.itemsize}").max() < places.size:
        return
    number = int(array[(array < 0) | (array >= places.size)][0])
    raise UnusableValue(
        f"input {places.input!r:.80} holds {number}, but {places.tensor!r:.80} has no place {number}: it has"
        f" {places.size} places, 0 to {places.size - 1}"
    )
