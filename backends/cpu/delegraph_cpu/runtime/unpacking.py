"""The weights in a blob -> those of its graph, some of which are unpacked from others at load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from delegraph.errors import DelegateInvalidCompatibility
from delegraph_cpu.blob import UnpackedWeight, damaged
from delegraph_cpu.codes import Codes

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["unpacked_weights"]


Parts: TypeAlias = "tuple[NDArray[Any], ...]"
"""Codes, scales and rows' scales; zero points, if there are any."""


def unpacked_weights(
    unpacked: Sequence[UnpackedWeight], lying: Mapping[str, NDArray[Any]], available: int
) -> dict[str, NDArray[Any]]:
    """`lying`, with `unpacked` in the place of their parts; weights with the same parts share an array.

    Raises `DelegateInvalidCompatibility` before memory is taken if the parts of a weight do not belong together, or if
    the weights need more than twice the `available` bytes: a hostile blob's parts could overlap a thousand times.
    """
    parts = {weight.name: _parts(weight, lying) for weight in unpacked}
    places = {name: tuple(part.ctypes.data for part in arrays) for name, arrays in parts.items()}
    distinct = {places[name]: arrays for name, arrays in parts.items()}
    if sum(packed.nbytes for packed, *_ in distinct.values()) > available:
        raise _unmade("weights", "they share bytes that differ")
    with np.errstate(all="ignore"):  # a stranger's scales may be anything
        weights = {
            place: Codes(packed, scale, *zero_point).as_int8(row_scale)
            for place, (packed, scale, row_scale, *zero_point) in distinct.items()
        }
    sources = {name for weight in unpacked for name in weight.sources}
    kept = {name: array for name, array in lying.items() if name not in sources}
    return kept | {name: weights[place] for name, place in places.items()}


def _parts(weight: UnpackedWeight, lying: Mapping[str, NDArray[Any]]) -> Parts:
    """The parts of a weight, if they belong together."""
    named, arrays = f"weight {weight.name!r:.80}", [lying.get(name) for name in weight.sources]
    for part, dtype, dims in zip(arrays, ("uint8", "float32", "float32", "uint8"), (2, 2, 1, 2), strict=False):
        if part is None or part.dtype != dtype or part.ndim != dims:
            raise _unmade(named, f"no {dtype} of {dims} dims")
    parts = tuple(part for part in arrays if part is not None)
    packed, scale, row_scale, *zero_point = parts
    (rows, half), groups = packed.shape, scale.shape[1]
    shapes = [scale.shape, *(zero.shape for zero in zero_point), (*row_scale.shape, groups)]
    if any(shape != (rows, groups) for shape in shapes) or groups == 0 or 2 * half % groups:
        raise _unmade(named, f"parts of {packed.shape}, {shapes}")
    return parts


def _unmade(what: str, why: str) -> DelegateInvalidCompatibility:
    return damaged(f"{what} cannot be made of what the header names: {why}")
