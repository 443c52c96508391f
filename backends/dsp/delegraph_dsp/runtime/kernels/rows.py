"""Kernels on rows, the last dim: softmax, layer and RMS norm, reductions.

Sums of float32 run in 32 lanes by ascending index, then the lanes are added in halves, 16 with 16, 8 with 8, down to
one: a fixed order, so that every machine has the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph_dsp.program import REDUCTIONS
from delegraph_dsp.runtime.kernels.table import CODE, CODES, MULTIPLIER, SHIFT, Arrays, kernel, same, write_codes
from delegraph_machines.fixed_point import quantized_multiplier, rescale

__all__ = ["LANES", "NORM_BITS", "WEIGHT_BITS", "lane_sum"]

LANES: Final = 32
HALF: Final = ("float16",)
GRID: Final = (MULTIPLIER, SHIFT, CODE, CODE, CODE)
FLAG: Final = (0, 1)


def lane_sum(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """The sum of each row, in the machine's order; [..., n] -> [..., 1]."""
    count = -(-rows.shape[-1] // LANES)
    lanes = np.zeros((*rows.shape[:-1], LANES), np.float32)
    for index in range(count):
        part = rows[..., index * LANES : (index + 1) * LANES]
        lanes[..., : part.shape[-1]] += part
    width = LANES
    while width > 1:
        width //= 2
        lanes = lanes[..., :width] + lanes[..., width : 2 * width]
    return lanes


# ---- softmax ------------------------------------------------------------------------------------------------------


def row_shapes(shapes: Sequence[tuple[int, ...]]) -> bool:
    """One shape, with a last dim of at least one element."""
    return same(shapes) and len(shapes[0]) > 0 and shapes[0][-1] > 0


@kernel("softmax", HALF, HALF, shapes=row_shapes, integers=(FLAG,))
def softmax(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """exp(x - max) over its sum; with 1, the logarithm of that. Exponentials are rounded to float32."""
    source, out = arrays
    x = source.astype(np.float32)
    moved = x - x.max(axis=-1, keepdims=True)
    exponentials = np.exp(moved.astype(np.float64)).astype(np.float32)
    total = lane_sum(exponentials)
    result = moved - np.log(total.astype(np.float64)).astype(np.float32) if integers[0] else exponentials / total
    np.copyto(out, result, casting="unsafe")


def softmax_int_shapes(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Rows, and two tables of 256 entries."""
    return row_shapes([shapes[0], shapes[-1]]) and shapes[1] == shapes[2] == (256,)


@kernel("softmax_int", CODES, ("int32",), ("int32",), CODES, shapes=softmax_int_shapes, integers=GRID)
def softmax_int(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """Softmax on codes: with d = max - x, exp(-d * scale) is the product of two entries with 30 bits of fraction, one
    for the low byte of d, one for the high byte; all are divided by their sum through one reciprocal of 31 bits."""
    source, low, high, out = arrays
    x = source.astype(np.int64)
    distance = x.max(axis=-1, keepdims=True) - x
    entries = np.clip(low.astype(np.int64), 0, 1 << 30), np.clip(high.astype(np.int64), 0, 1 << 30)
    exponentials = (entries[0][distance & 255] * entries[1][distance >> 8] + (1 << 29)) >> 30
    total = np.maximum(exponentials.sum(axis=-1, keepdims=True), 1 << 30)
    bits = np.frexp(total.astype(np.float64))[1].astype(np.int64) - 31
    mantissa = total >> bits
    reciprocal = ((1 << 61) + (mantissa >> 1)) // mantissa
    parts = (exponentials * reciprocal + (np.int64(1) << (bits + 30))) >> (bits + 31)
    write_codes(out, parts, integers)


# ---- norms --------------------------------------------------------------------------------------------------------

NORM_BITS: Final = 16
"""Bits of fraction of a normalized value."""
WEIGHT_BITS: Final = 10
"""Bits that are rounded off a normalized value times its weight: 6 bits of fraction are left, beside the weight's own
15."""
LARGEST_EPSILON: Final = 1e30
"""The largest epsilon: with it a row's factor is finite, whatever a binary says."""


def norm_shapes(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Rows, and a weight and a bias for each of their elements."""
    source, weight, bias, out = shapes
    return row_shapes([source, out]) and weight == bias == out[-1:]


@kernel("norm", HALF, HALF, HALF, HALF, shapes=norm_shapes, integers=(FLAG,), reals=1)
def norm(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """Layer norm if the flag is set, else RMS norm: float32 throughout, rounded once. The real is epsilon."""
    source, weight, bias, out = arrays
    x, count = source.astype(np.float32), np.float32(source.shape[-1])
    if integers[0]:
        x = x - lane_sum(x) / count
    scale = np.float32(1) / np.sqrt(lane_sum(x * x) / count + np.float32(reals[0]))
    np.copyto(out, x * scale * weight.astype(np.float32) + bias.astype(np.float32), casting="unsafe")


@kernel(
    "norm_int", CODES, ("int16",), ("int32",), CODES, shapes=norm_shapes, integers=(FLAG, CODE, *GRID), reals=1
)  # fmt: skip
def norm_int(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """Layer or RMS norm of codes. With n codes x of a row, or x minus the zero point without a mean,

        d = n * x - sum(x)        v = n * sum(x * x) - sum(x) ** 2        normalized = d / sqrt(v + n * n * epsilon)

    where d and v are exact, the row's factor becomes a multiplier and a shift, and epsilon is that of the codes.
    """
    source, weight, bias, out = arrays
    subtract_mean, zero, *grid = integers
    x, count = source.astype(np.int64) - zero, source.shape[-1]
    total = x.sum(axis=-1, keepdims=True) if subtract_mean else np.int64(0)
    spread = count * (x * x).sum(axis=-1, keepdims=True) - total * total
    root = np.sqrt(np.maximum(spread.astype(np.float64) + float(count) ** 2 * min(abs(reals[0]), LARGEST_EPSILON), 1.0))
    normalized = rescale(count * x - total, *quantized_multiplier(2.0**NORM_BITS / root))
    weighted = (normalized * weight + (1 << (WEIGHT_BITS - 1))) >> WEIGHT_BITS
    write_codes(out, weighted + bias, grid)


# ---- reductions ---------------------------------------------------------------------------------------------------


def reduce_shapes(shapes: Sequence[tuple[int, ...]]) -> bool:
    """The output has one element for each row."""
    source, out = shapes
    return len(source) == len(out) > 0 and out == (*source[:-1], 1) and source[-1] > 0


FUNCTION: Final = (0, len(REDUCTIONS) - 1)


@kernel("reduce", HALF, HALF, shapes=reduce_shapes, integers=(FUNCTION,))
def reduce(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """Sum, mean, largest or smallest of each row, in float32, rounded once."""
    source, out = arrays
    x, function = source.astype(np.float32), REDUCTIONS[integers[0]]
    if function in ("amax", "amin"):
        result = (np.max if function == "amax" else np.min)(x, axis=-1, keepdims=True)
    else:
        result = lane_sum(x) / np.float32(x.shape[-1] if function == "mean" else 1)
    np.copyto(out, result, casting="unsafe")


@kernel("reduce_int", CODES, CODES, shapes=reduce_shapes, integers=(FUNCTION, CODE, *GRID))
def reduce_int(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """As `reduce`, of codes: an exact sum, or one of the codes, rescaled to the output's grid; a mean's multiplier
    includes 1 / n."""
    source, out = arrays
    function, zero, *grid = integers
    x: NDArray[Any] = source.astype(np.int64) - zero
    reduced = {"amax": np.max, "amin": np.min}.get(REDUCTIONS[function], np.sum)
    write_codes(out, reduced(x, axis=-1, keepdims=True), grid)
