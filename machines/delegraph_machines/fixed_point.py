"""Real scales and accumulators -> integers, as TOSA 1.0 (integer profile) computes them; every function is exact.

A scale is `multiplier * 2**-shift` with the multiplier in [2**30, 2**31) and the shift in [2, 62]. `rounding` is
"single" (half up, once: TOSA's SINGLE_ROUND) or "double" (TOSA's DOUBLE_ROUND, which equals gemmlowp, TFLite, CMSIS).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "Rounding",
    "look_up",
    "not_interpolated",
    "quantized_multiplier",
    "reciprocal",
    "requantize",
    "rescale",
    "table_of",
]

Rounding: TypeAlias = Literal["single", "double"]
"""Half up, once; or as gemmlowp does, in two steps."""

_FRACTION_BITS: Final = 31  # of a multiplier
_SHIFTS: Final = (2, 62)  # TOSA 1.0, RESCALE


def quantized_multiplier(scale: ArrayLike) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """The multiplier and shift nearest to each positive `scale`, in its shape.

    Raises `ValueError` for a scale that is not positive and finite, or of 2**29 and more; one too small for a shift of
    62 becomes the multiplier 0.
    """
    real = np.asarray(scale, np.float64)
    if not (np.isfinite(real) & (real > 0)).all():
        raise ValueError(f"a scale is positive and finite, not {real[~(np.isfinite(real) & (real > 0))][0]}")
    mantissa, exponent = np.frexp(real)
    multiplier = np.rint(mantissa * 2.0**_FRACTION_BITS).astype(np.int64)
    rounded_up = multiplier == 1 << _FRACTION_BITS
    multiplier = np.where(rounded_up, multiplier >> 1, multiplier)
    shift = _FRACTION_BITS - (exponent.astype(np.int64) + rounded_up)
    if (shift < _SHIFTS[0]).any():
        raise ValueError(f"scale {real.max()} is too large for a multiplier and a shift of at least {_SHIFTS[0]}")
    multiplier = np.where(shift > _SHIFTS[1], 0, multiplier)
    return multiplier.astype(np.int32), np.minimum(shift, _SHIFTS[1]).astype(np.int8)


def rescale(
    values: ArrayLike, multiplier: ArrayLike, shift: ArrayLike, rounding: Rounding = "single"
) -> NDArray[np.int64]:
    """`values * multiplier * 2**-shift`, rounded (TOSA 1.0, APPLY_SCALE_32). `values` have 32 bits, the others
    broadcast to them; the result is not clamped."""
    wide = np.asarray(values, np.int64)
    by = np.asarray(shift, np.int64)
    half = np.int64(1) << (by - 1)
    if rounding == "double":
        first = np.where(wide >= 0, np.int64(1 << 30), np.int64(-(1 << 30)))
        half = half + np.where(by > _FRACTION_BITS, first, 0)
    result = np.asarray(wide * np.asarray(multiplier, np.int64) + half)
    result >>= by
    return result


def requantize(
    values: ArrayLike,
    multiplier: ArrayLike,
    shift: ArrayLike,
    zero_point: int,
    low: int,
    high: int,
    rounding: Rounding = "single",
) -> NDArray[np.int64]:
    """Accumulators of 32 bits -> values of the output's grid: rescaled, moved by its zero point, clamped."""
    result = rescale(values, multiplier, shift, rounding)
    result += zero_point
    np.maximum(result, low, out=result)
    return np.minimum(result, high, out=result)


def reciprocal(count: int) -> tuple[int, int]:
    """The multiplier and shift by which a sum of `count` values becomes their mean (TOSA 1.0, RECIPROCAL_SCALE)."""
    if count < 1:
        raise ValueError(f"a mean is of at least one value, not {count}")
    bits = (count - 1).bit_length()
    return (((1 << 30) + 1) << bits) // count, 30 + bits


def table_of(
    function: Callable[[NDArray[np.float64]], NDArray[Any]],
    in_scale: float,
    in_zero: int,
    out_scale: float,
    out_zero: int,
    dtype: type[np.int8] | type[np.int16],
) -> NDArray[np.int8] | NDArray[np.int16]:
    """`function` on a grid of `dtype`, for `look_up`.

    int8: 256 entries, one for each value from -128 on. int16: 513 entries, one for each 128th value from -32768 to
    32768, between which `look_up` interpolates (TOSA 1.0, TABLE). Entries round half to even, as TFLite's do.
    """
    codes = np.arange(-128.0, 128.0) if dtype is np.int8 else np.arange(-32768.0, 32768.0 + 1, 128)
    bounds = np.iinfo(dtype)
    with np.errstate(all="ignore"):  # a logarithm is NaN below zero, and -inf at zero
        steps = np.rint(np.asarray(function((codes - in_zero) * in_scale), np.float64) / out_scale)
    entries = np.nan_to_num(steps, nan=0.0, posinf=np.inf, neginf=-np.inf) + out_zero
    return cast("NDArray[np.int8] | NDArray[np.int16]", np.clip(entries, bounds.min, bounds.max).astype(dtype))


def not_interpolated(function: str, low: float, high: float) -> str | None:
    """The reason why interpolation between int16 entries is far from `function`, by torch's name, from `low` to `high`;
    None if it is near. int8 has an entry for each value."""
    pole = next((pole for pole in _POLES.get(function, ()) if low <= pole <= high), None)
    if function not in _JUMPS and pole is None:
        return None
    what = "jumps there" if pole is None else f"has a pole at {pole:.4g}"
    return f"an int16 table has lines between each 128th value, and {function} {what}"


_JUMPS: Final = frozenset({"ceil", "floor", "round", "sign"})

_POLES: Final[Mapping[str, tuple[float, ...]]] = {
    **dict.fromkeys(("log", "log2", "log10", "reciprocal", "rsqrt"), (0.0,)),
    "log1p": (-1.0,),
    "tan": (-np.pi / 2, np.pi / 2),
}
"""Function -> its poles next to 0."""


def look_up(table: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    """`table` at `values`: int8 -> int8 through 256 entries; int16 -> int32 through 513, with 7 bits of fraction.

    The int16 result is `base << 7` plus a slope (TOSA 1.0, TABLE), so it has 7 bits more than an entry.
    """
    if values.dtype == np.int8:
        return np.asarray(table[values.astype(np.int64) + 128], np.int8)
    index = (values.astype(np.int64) + 32768) >> 7
    fraction = values.astype(np.int64) & 0x7F
    base = table[index].astype(np.int64)
    slope = np.clip(table[index + 1].astype(np.int64) - base, -32768, 32767)
    return np.asarray((base << 7) + slope * fraction, np.int32)
