"""Chebyshev series: coefficients of T0, T1 … and points in [-1, 1] -> values, by Clenshaw's recurrence."""

from __future__ import annotations

from collections.abc import Sequence

from delegraph.runtime.numpy_kernels.prepared import Array


def chebyshev(coefficients: Sequence[float], t: Array) -> Array:
    """Σ c_k T_k(t). Source: C. W. Clenshaw, "A note on the summation of Chebyshev series", MTAC 9 (1955), 118-120."""
    first, second = 0.0 * t, 0.0 * t
    doubled = 2 * t
    for coefficient in reversed(coefficients[1:]):
        first, second = doubled * first - second + coefficient, first
    value: Array = t * first - second + coefficients[0]
    return value
