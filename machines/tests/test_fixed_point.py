"""Fixed-point arithmetic against exact rational numbers."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delegraph_machines.fixed_point import (
    look_up,
    not_interpolated,
    quantized_multiplier,
    reciprocal,
    requantize,
    rescale,
    table_of,
)

scales = st.floats(min_value=2.0**-31, max_value=2.0**28, allow_nan=False)
accumulators = st.integers(-(2**31), 2**31 - 1)


def half_up(value: Fraction) -> int:
    return floor(value + Fraction(1, 2))


@given(scales)
def test_a_scale_is_met_to_the_last_bit_of_its_multiplier(scale: float) -> None:
    multiplier, shift = (int(one) for one in quantized_multiplier(scale))
    assert 2**30 <= multiplier < 2**31 and 2 <= shift <= 62
    assert abs(Fraction(multiplier, 2**shift) / Fraction(scale) - 1) <= Fraction(1, 2**31)


def test_a_scale_that_rounds_up_to_a_power_of_two_keeps_its_multiplier_in_range() -> None:
    multiplier, shift = quantized_multiplier(np.nextafter(1.0, 0.0))
    assert (int(multiplier), int(shift)) == (2**30, 30)


def test_a_scale_below_all_shifts_is_zero() -> None:
    multiplier, shift = quantized_multiplier([2.0**-40, 0.5])
    assert multiplier.tolist() == [0, 2**30] and shift.tolist() == [62, 31]


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_is_positive_and_finite(scale: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        quantized_multiplier([1.0, scale])


def test_a_scale_too_large_for_the_smallest_shift_is_refused() -> None:
    with pytest.raises(ValueError, match="too large"):
        quantized_multiplier(2.0**29)


@given(accumulators, scales)
def test_single_rounding_is_half_up_of_the_exact_product(value: int, scale: float) -> None:
    multiplier, shift = quantized_multiplier(scale)
    assert int(rescale(value, multiplier, shift)) == half_up(Fraction(value * int(multiplier), 2 ** int(shift)))


@given(accumulators, st.floats(min_value=2.0**-31, max_value=1.0))
def test_double_rounding_is_gemmlowps(value: int, scale: float) -> None:
    """SaturatingRoundingDoublingHighMul, then RoundingDivideByPOT towards plus infinity, for shifts above 31."""
    multiplier, shift = (int(one) for one in quantized_multiplier(scale))
    if shift <= 31:
        return
    nudge = 2**30 if value >= 0 else 1 - 2**30
    product = value * multiplier + nudge
    high = product >> 31 if product >= 0 else -((-product) >> 31)
    exact = Fraction(high, 2 ** (shift - 31))
    ours = int(rescale(value, multiplier, shift, "double"))
    assert abs(ours - exact) <= Fraction(1, 2) + Fraction(1, 2 ** (shift - 31))


def test_requantizing_moves_and_clamps() -> None:
    multiplier, shift = quantized_multiplier([0.5, 0.25])
    out = requantize([[3, 3], [-1000, 1000]], multiplier, shift, zero_point=-1, low=-128, high=127)
    assert out.tolist() == [[1, 0], [-128, 127]]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 9, 49, 65536])
def test_a_mean_by_its_reciprocal_is_off_by_rounding_alone(count: int) -> None:
    multiplier, shift = reciprocal(count)
    sums = np.arange(-128 * count, 127 * count + 1, max(1, count // 8))
    means = rescale(sums, multiplier, shift)
    assert np.abs(means - sums / count).max() <= 0.5 + 1e-6


def test_a_mean_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        reciprocal(0)


def test_a_table_of_int8_is_the_rounded_function_everywhere() -> None:
    table = table_of(np.tanh, 0.05, 3, 1 / 128, 0, np.int8)
    codes = np.arange(-128, 128).astype(np.int8)
    expected = np.clip(np.rint(np.tanh((codes.astype(float) - 3) * 0.05) * 128), -128, 127)
    assert np.array_equal(look_up(table, codes), expected)


def test_a_table_of_int16_interpolates_with_seven_bits_more() -> None:
    table = table_of(np.tanh, 1 / 8192, 0, 1 / 32768, 0, np.int16)
    codes = np.arange(-32768, 32768).astype(np.int16)
    found = look_up(table, codes)
    assert found.dtype == np.int32
    assert np.abs(found / (32768 * 128) - np.tanh(codes / 8192.0)).max() < 1e-4


def test_a_function_without_a_value_has_a_bounded_entry() -> None:
    table = table_of(np.log, 0.1, 0, 0.1, 0, np.int8)
    assert table[0] == 0 and table[128] == -128  # of negative numbers; of zero


@pytest.mark.parametrize(
    ("name", "most", "far"),
    [
        *[(name, 3.9, True) for name in ("floor", "ceil", "round", "sign")],
        *[(name, 3.9, True) for name in ("log", "log2", "log10", "reciprocal", "tan")],
        *[("log1p", 3.9, True), ("log1p", 0.9, False), ("tan", 1.4, False)],
        *[(name, 3.9, False) for name in ("tanh", "abs", "sin", "exp", "expm1")],
    ],
)
def test_lines_between_entries_are_near_what_neither_jumps_nor_has_a_pole(name: str, most: float, far: bool) -> None:
    function = getattr(np, name)
    values, scale = np.arange(-32767, 32768).astype(np.int16), most / 32767
    with np.errstate(all="ignore"):
        exact = np.clip(np.nan_to_num(function(values * scale)), -60, 60)
    step = np.abs(exact).max() / 32767
    off = look_up(table_of(function, scale, 0, step, 0, np.int16), values) / 128 * step - exact
    assert (np.abs(off).max() > 0.1) == far
    reason = not_interpolated(name, -most, most)
    assert (reason is not None) == far
    assert reason is None or reason.startswith("an int16 table has lines between each 128th value, and " + name)
