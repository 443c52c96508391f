"""Weights of 4 bits in groups <-> int8 with one scale a row, for products of integers, which have no groups.

Rounding to the row's int8 adds an error some 20 dB below that of 4 bits: where the largest element of a row is 127, a
step of its group is 17 or 18.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from delegraph.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Codes"]

MIDDLE: Final = 8
"""The zero point of codes without zero points."""

_ELEMENTS: Final = 2**16
"""The number of elements that are unpacked at a time, so that they stay in a core's cache."""


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """A weight (rows, inner) whose elements are `(code - zero_point) * scale`, inner being even.

    The arrays are of uint8 (rows, inner / 2), two codes a byte, the lower half first; of float32 (rows, groups); and of
    uint8 (rows, groups), or None for 8.
    """

    packed: NDArray[np.uint8]
    scale: NDArray[np.float32]
    zero_point: NDArray[np.uint8] | None = None

    def row_scale(self) -> NDArray[np.float32]:
        """(rows,): the scales of int8 with largest elements of 127 or -127; 1 for a row of zeros."""
        largest = np.zeros(self.scale.shape[0], np.float32)
        for some in self._slices():
            elements = self._centred(some) * self.scale[some, :, None]
            largest[some] = np.abs(elements).max((1, 2))
        return np.where(largest == 0, np.float32(1), largest / np.float32(127)).astype(np.float32)

    def as_int8(self, row_scale: NDArray[np.float32]) -> NDArray[np.int8]:
        """The weight in steps of `row_scale`, (rows, inner)."""
        rows, half = self.packed.shape
        result = np.empty((rows, 2 * half), np.int8)
        for some in self._slices():
            elements = self._centred(some)
            elements *= (self.scale[some] / row_scale[some, None])[..., None]
            np.rint(elements, out=elements)
            result[some] = elements.reshape(-1, 2 * half)
        return result

    def _slices(self) -> list[slice]:
        rows, half = self.packed.shape
        count = max(1, _ELEMENTS // max(1, 2 * half))
        return [slice(start, start + count) for start in range(0, rows, count)]

    def _centred(self, some: slice) -> NDArray[np.float32]:
        """Codes minus their zero points, (rows, groups, elements of a group)."""
        packed = self.packed[some]
        codes = np.empty((*packed.shape, 2), np.float32)
        np.bitwise_and(packed, 15, out=codes[..., 0], casting="unsafe")
        np.right_shift(packed, 4, out=codes[..., 1], casting="unsafe")
        grouped = codes.reshape(packed.shape[0], self.scale.shape[1], -1)
        grouped -= np.float32(MIDDLE) if self.zero_point is None else self.zero_point[some, :, None]
        return grouped
