"""The error function, which NumPy lacks.

float32: tanh(x P(x²)), where x P(x²) approximates atanh(erf(x)); P was fitted for this module by least squares weighted
towards the largest relative error of erf on |x| < 3.93, beyond which erf rounds to ±1.
float64: W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969), 631-637.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np

from .library import Array

_ATANH_ERF: Final = (
    1.41849657e-07,
    -5.66842808e-06,
    8.76370177e-05,
    -6.19783779e-04,
    -1.91831897e-04,
    1.02769056e-01,
    1.12837927,
)

# Cody's coefficients, highest power first: erf(x) = x P/Q(x²) below 0.46875; erfc(x) = exp(-x²) P/Q(x) up to 4;
# erfc(x) = exp(-x²) (1/√π - P/Q(1/x²)/x²) / x above.
_NEAR: Final = (
    (
        1.85777706184603153e-1,
        3.16112374387056560e0,
        1.13864154151050156e2,
        3.77485237685302021e2,
        3.20937758913846947e3,
    ),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
_MIDDLE: Final = (
    (
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594e0,
        6.61191906371416295e1,
        2.98635138197400131e2,
        8.81952221241769090e2,
        1.71204761263407058e3,
        2.05107837782607147e3,
        1.23033935479799725e3,
    ),
    (
        1.0,
        1.57449261107098347e1,
        1.17693950891312499e2,
        5.37181101862009858e2,
        1.62138957456669019e3,
        3.29079923573345963e3,
        4.36261909014324716e3,
        3.43936767414372164e3,
        1.23033935480374942e3,
    ),
)
_FAR: Final = (
    (
        1.63153871373020978e-2,
        3.05326634961232344e-1,
        3.60344899949804439e-1,
        1.25781726111229246e-1,
        1.60837851487422766e-2,
        6.58749161529837803e-4,
    ),
    (
        1.0,
        2.56852019228982242e0,
        1.87295284992346725e0,
        5.27905102951428412e-1,
        6.05183413124413191e-2,
        2.33520497626869185e-3,
    ),
)


def erf(scale: float, squared: Array, x: Array, out: Array) -> None:
    """erf(scale * x) of float32 or float64 `x` into `out`, overwriting `squared`: of one shape and dtype."""
    if x.dtype != np.float32:
        out[...] = _erf64(x * scale)
        return
    highest, *others, constant = _coefficients(scale)
    np.square(x, squared)
    np.multiply(squared, highest, out)
    for coefficient in others:
        np.add(out, coefficient, out)
        np.multiply(out, squared, out)
    np.add(out, constant, out)
    np.multiply(out, x, out)
    np.tanh(out, out)


@cache
def _coefficients(scale: float) -> tuple[Array, ...]:
    """Of P with x P(x²) = atanh(erf(scale * x)), highest power first. Largest relative error of erf: about 4e-7."""
    degree = len(_ATANH_ERF) - 1
    return tuple(np.array(c * scale ** (2 * (degree - i) + 1), np.float32) for i, c in enumerate(_ATANH_ERF))


def _erf64(x: Array) -> Array:
    magnitude = np.abs(x)
    near = magnitude < 0.46875
    far = magnitude > 4
    squared = np.square(x)
    bounded = np.where(far, 1.0, magnitude)
    reciprocal = 1 / np.where(far, squared, 16.0)
    middle = _ratio(_MIDDLE, bounded)
    tail = (1 / np.sqrt(np.pi) - reciprocal * _ratio(_FAR, reciprocal)) / np.where(far, magnitude, 4.0)
    complement = np.exp(-squared) * np.where(far, tail, middle)
    return np.where(near, x * _ratio(_NEAR, np.where(near, squared, 0.0)), np.copysign(1 - complement, x))


def _ratio(coefficients: tuple[Sequence[float], Sequence[float]], x: Array) -> Array:
    return np.polyval(coefficients[0], x) / np.polyval(coefficients[1], x)
