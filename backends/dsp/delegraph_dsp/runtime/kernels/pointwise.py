"""Kernels on elements: float16 computed in float32 and rounded once, int8 and int16 as in TOSA 1.0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from delegraph_dsp.program import BINARY_FUNCTIONS, FUNCTIONS
from delegraph_dsp.runtime.functions import table_of_halves
from delegraph_dsp.runtime.kernels.table import (
    ANY_INTEGER,
    CODE,
    CODES,
    MULTIPLIER,
    SHIFT,
    Arrays,
    broadcast,
    kernel,
    same,
    write_codes,
)
from delegraph_machines.fixed_point import look_up, rescale

__all__: list[str] = []

HALF: Final = ("float16",)
FLOATS: Final = ("float16", "float32")
STORED: Final = ("int8", "int16", "int32", "int64", "float16", "float32", "bool")
GRID: Final = (MULTIPLIER, SHIFT, CODE, CODE, CODE)
"""The integers by which accumulators become codes: multiplier, shift, zero point, and the limits."""


# ---- any dtype ----------------------------------------------------------------------------------------------------


@kernel("copy", STORED, STORED, shapes=broadcast)
def copy(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """Move elements, of one dtype."""
    source, out = arrays
    np.copyto(out, source, casting="unsafe")


@kernel("convert", FLOATS, FLOATS, shapes=same)
def convert(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """float32 to float16, to the nearest (even), and back."""
    np.copyto(arrays[1], arrays[0], casting="unsafe")


@kernel("fill", STORED, shapes=same, integers=(ANY_INTEGER,), reals=1)
def fill(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """Set all elements to the integer, or to the real if they are floats."""
    (out,) = arrays
    value = np.float64(reals[0]) if out.dtype.kind == "f" else np.int64(integers[0])
    out[...] = value.astype(out.dtype)


@kernel("clamp", (*HALF, *CODES), (*HALF, *CODES), shapes=same, integers=(CODE, CODE), reals=2)
def clamp(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """Limit to the two integers, or to the two reals if they are floats; NaN stays."""
    source, out = arrays
    low, high = (np.float16(real) for real in reals) if source.dtype.kind == "f" else integers
    np.copyto(out, np.minimum(np.maximum(source, low), high), casting="unsafe")


# ---- float16 ------------------------------------------------------------------------------------------------------


@kernel("unary", HALF, HALF, shapes=same, integers=((0, len(FUNCTIONS) - 1),))
def unary(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """A function of each element, correctly rounded."""
    source, out = arrays
    out[...] = table_of_halves(FUNCTIONS[integers[0]])[source.view(np.uint16)]


BINARY: Final = dict(
    zip(
        BINARY_FUNCTIONS,
        (
            *(np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum),
            *(np.greater, np.less, np.greater_equal, np.less_equal, np.equal, np.not_equal),
        ),
        strict=True,
    )
)


@kernel("binary", HALF, HALF, ("float16", "bool"), shapes=broadcast, integers=((0, len(BINARY_FUNCTIONS) - 1),))
def binary(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """A function of two, in float32: its rounding to float16 is that of the exact result (Figueroa 1995)."""
    a, b, out = arrays
    function = BINARY[BINARY_FUNCTIONS[integers[0]]]
    np.copyto(out, function(a.astype(np.float32), b.astype(np.float32)), casting="unsafe")


@kernel("where", ("bool",), (*HALF, *CODES), (*HALF, *CODES), (*HALF, *CODES), shapes=broadcast)
def where(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """The first where the condition holds, else the second."""
    condition, a, b, out = arrays
    np.copyto(out, np.where(condition.view(np.uint8) != 0, a, b), casting="unsafe")


# ---- int8, int16 --------------------------------------------------------------------------------------------------


def table_shapes(shapes: Sequence[tuple[int, ...]]) -> bool:
    """A table of 256 entries, or of 513; whether that suits the dtype is checked at run time."""
    return shapes[0] == shapes[2] and shapes[1] in ((256,), (513,))


@kernel("table", CODES, CODES, CODES, shapes=table_shapes)
def table(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """A function by its table (TOSA 1.0, TABLE); of int16, whose result has 7 bits more, rounded to 16 bits."""
    source, entries, out = arrays
    if source.dtype == np.int8:
        np.copyto(out, entries[source.astype(np.int64) + 128], casting="unsafe")
    elif entries.size == 513:
        np.copyto(out, np.clip((look_up(entries, source).astype(np.int64) + 64) >> 7, *CODE), casting="unsafe")


@kernel(
    "add_int", CODES, CODES, CODES, shapes=broadcast,
    integers=(CODE, MULTIPLIER, SHIFT, CODE, MULTIPLIER, SHIFT, (-1, 1), *GRID),
)  # fmt: skip
def add_int(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """a + sign * b: both rescaled to a grid of 32 bits, added, rescaled to the output's."""
    a, b, out = arrays
    zero_a, multiplier_a, shift_a, zero_b, multiplier_b, shift_b, sign, *grid = integers
    left = rescale(a.astype(np.int64) - zero_a, multiplier_a, shift_a)
    right = rescale(b.astype(np.int64) - zero_b, multiplier_b, shift_b)
    write_codes(out, left + sign * right, grid)


@kernel("mul_int", CODES, CODES, CODES, shapes=broadcast, integers=(CODE, CODE, *GRID))
def mul_int(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """The product, of 32 bits, rescaled to the output's grid."""
    a, b, out = arrays
    zero_a, zero_b, *grid = integers
    product = (a.astype(np.int64) - zero_a) * (b.astype(np.int64) - zero_b)
    write_codes(out, product, grid)


@kernel("rescale", CODES, CODES, shapes=same, integers=(CODE, *GRID))
def rescaled(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """Codes of one grid on another (TOSA 1.0, RESCALE)."""
    source, out = arrays
    zero, *grid = integers
    write_codes(out, source.astype(np.int64) - zero, grid)


@kernel("quantize", FLOATS, CODES, shapes=same, integers=(CODE, CODE, CODE), reals=1)
def quantize(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """`clamp(round(x * (1 / scale)) + zero point)`, in float32, halves to even, as in torch; the real is 1 / scale.

    NaN becomes the lowest code.
    """
    source, out = arrays
    zero, low, high = integers
    steps = np.rint(source.astype(np.float32) * np.float32(reals[0])) + np.float32(zero)
    np.copyto(out, np.clip(np.nan_to_num(steps, nan=low), low, high), casting="unsafe")


@kernel("dequantize", CODES, FLOATS, shapes=same, integers=(CODE,), reals=1)
def dequantize(arrays: Arrays, integers: Sequence[int], reals: Sequence[float]) -> None:
    """`(code - zero point) * scale`, in float32."""
    source, out = arrays
    real = (source.astype(np.int32) - integers[0]).astype(np.float32) * np.float32(reals[0])
    np.copyto(out, real, casting="unsafe")
