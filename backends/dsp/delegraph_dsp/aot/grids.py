"""Scales of grids -> the integers of kernels: multipliers, shifts, tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from delegraph.aot.authoring import Quantization
from delegraph_dsp.aot.kernel_graph import Unsupported
from delegraph_machines.fixed_point import quantized_multiplier, table_of

__all__ = ["exponentials", "function_table", "limits_of", "multipliers", "output_integers", "scaled"]

MULTIPLIER_BITS_OF_WIDE = 16
"""Bits of the multiplier of an accumulator of 48 bits: TOSA 1.0, RESCALE with `scale32` false."""


def multipliers(scale: ArrayLike, wide: bool = False) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Multiplier and shift of each scale; of 15 bits and a sign for `wide` accumulators, which have 48 bits.

    Raises `Unsupported` for a scale without a multiplier.
    """
    try:
        multiplier, shift = quantized_multiplier(scale)
    except ValueError as error:
        raise Unsupported(f"its scales are too far apart: {error}") from error
    if not wide:
        return multiplier, shift.astype(np.int32)
    narrow = (multiplier.astype(np.int64) + (1 << (MULTIPLIER_BITS_OF_WIDE - 1))) >> MULTIPLIER_BITS_OF_WIDE
    carried = narrow == 1 << 15
    shifts = shift.astype(np.int32) - MULTIPLIER_BITS_OF_WIDE - carried
    if (shifts < 2).any():
        raise Unsupported("its scales are too far apart for a multiplier of 16 bits")
    return np.where(carried, narrow >> 1, narrow).astype(np.int32), shifts


def scaled(scale: float) -> tuple[int, int]:
    """Multiplier and shift of one scale."""
    multiplier, shift = multipliers(scale)
    return int(multiplier), int(shift)


def limits_of(grid: Quantization) -> tuple[int, int, int]:
    """Zero point, lowest and highest code."""
    return int(grid.zero_point), grid.qmin, grid.qmax


def output_integers(scale: float, grid: Quantization) -> tuple[int, ...]:
    """The integers by which accumulators whose unit is `scale` units of `grid` become codes of `grid`."""
    return (*scaled(scale), *limits_of(grid))


def function_table(
    function: Callable[[NDArray[np.float64]], NDArray[Any]], source: Quantization, target: Quantization
) -> NDArray[Any]:
    """The table of a function from codes to codes: 256 entries of int8, 513 of int16, with lines between them."""
    dtype: Any = np.int8 if str(source.dtype).endswith("int8") else np.int16
    table = table_of(
        function, float(source.scale), int(source.zero_point), float(target.scale), int(target.zero_point), dtype
    )
    return np.asarray(np.clip(table, target.qmin, target.qmax).astype(dtype))


def exponentials(scale: float) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """exp(-d * scale) for d of 0 to 255, and of 0, 256 to 65280: 30 bits of fraction."""
    steps = np.arange(256.0)
    low, high = (np.rint(np.exp(-steps * by * scale) * 2.0**30).astype(np.int32) for by in (1, 256))
    return low, high
