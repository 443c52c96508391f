"""A tensor's dtype and sizes -> how many bytes it needs."""

from __future__ import annotations

from math import prod
from typing import Final

from delegraph.program.schema import ScalarType

ELEMENT_SIZE: Final[dict[ScalarType, int]] = {
    **dict.fromkeys(ScalarType, 1),
    **dict.fromkeys((ScalarType.SHORT, ScalarType.HALF, ScalarType.BFLOAT16, ScalarType.UINT16, ScalarType.BITS16), 2),
    **dict.fromkeys((ScalarType.INT, ScalarType.FLOAT, ScalarType.QINT32, ScalarType.COMPLEX32, ScalarType.UINT32), 4),
    **dict.fromkeys((ScalarType.LONG, ScalarType.DOUBLE, ScalarType.COMPLEX64, ScalarType.UINT64), 8),
    ScalarType.COMPLEX128: 16,
}
"""Bytes per element; the packed 2 and 4 bit types count one byte each (`c10/core/ScalarType.h`)."""


def nbytes(scalar_type: ScalarType, sizes: tuple[int, ...]) -> int:
    """Bytes of a dense tensor of `sizes`; of its upper bound where these are bounds."""
    return prod(sizes, start=ELEMENT_SIZE[scalar_type])
