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

from delegraph.runtime.numpy_kernels.prepared import Array

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
    return np.where(np.abs(x) < _NEAR_LIMIT, _erf_near(x), np.copysign(1 - _scaled_tail(x) * _gaussian(x), x))


def erfc(x: Array) -> Array:
    """1 - erf(x) of float64, without cancellation."""
    tail = _scaled_tail(x) * _gaussian(x)
    return np.where(np.abs(x) < _NEAR_LIMIT, 1 - _erf_near(x), np.where(x < 0, 2 - tail, tail))


def erfcx(x: Array) -> Array:
    """exp(x²) erfc(x) of float64."""
    tail = _scaled_tail(x)
    growth = 1 / _gaussian(x)
    near = np.exp(np.square(x)) * (1 - _erf_near(x))
    return np.where(np.abs(x) < _NEAR_LIMIT, near, np.where(x < 0, 2 * growth - tail, tail))


_NEAR_LIMIT: Final = 0.46875


def _erf_near(x: Array) -> Array:
    return np.asarray(x * _ratio(_NEAR, np.square(np.clip(x, -_NEAR_LIMIT, _NEAR_LIMIT))))


def _scaled_tail(x: Array) -> Array:
    """exp(x²) erfc(|x|), |x| ≥ 0.46875."""
    magnitude = np.abs(x)
    far = magnitude > 4
    middle = _ratio(_MIDDLE, np.where(far, 1.0, magnitude))
    reciprocal = 1 / np.square(np.where(far, magnitude, 4.0))
    tail = (1 / np.sqrt(np.pi) - reciprocal * _ratio(_FAR, reciprocal)) / np.where(far, magnitude, 4.0)
    return np.where(far, tail, middle)


def _gaussian(x: Array) -> Array:
    """exp(-x²), the square taken in two parts: the larger exactly, of x in sixteenths."""
    magnitude = np.minimum(np.abs(x), 40.0)
    coarse = np.trunc(16 * magnitude) / 16
    return np.asarray(np.exp(-np.square(coarse)) * np.exp(-(magnitude - coarse) * (magnitude + coarse)))


def _ratio(coefficients: tuple[Sequence[float], Sequence[float]], x: Array) -> Array:
    return np.polyval(coefficients[0], x) / np.polyval(coefficients[1], x)


# ---- inverses ---------------------------------------------------------------------------------------

# M. J. Wichura, "Algorithm AS 241: The percentage points of the normal distribution", Appl. Statist. 37 (1988),
# 477-484, PPND16: highest power first; q A/B(0.180625 - q²), then C/D(r - 1.6) and E/F(r - 5), r = √-ln(tail).
_CENTRE: Final = (
    (
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ),
)
_FLANK: Final = (
    (
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258e0,
        3.64784832476320460504e0,
        5.76949722146069140550e0,
        4.63033784615654529590e0,
        1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940e0,
        2.05319162663775882187e0,
        1.0,
    ),
)
_END: Final = (
    (
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580e0,
        5.46378491116411436990e0,
        6.65790464350110377720e0,
    ),
    (
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
        1.0,
    ),
)


def ndtri(p: Array) -> Array:
    """The normal distribution's quantile of float64: ∓inf at 0 and 1, NaN outside."""
    return _quantile(p - 0.5, np.minimum(p, 1 - p))


def erfinv(y: Array) -> Array:
    """The inverse of erf of float64: ∓inf at -1 and 1, NaN outside."""
    return np.asarray(_quantile(y / 2, (1 - np.abs(y)) / 2) * np.sqrt(0.5))


def _quantile(q: Array, tail: Array) -> Array:
    """Of the probability ½ + q, whose distance from 0 or 1 is `tail`."""
    r = np.sqrt(-np.log(tail))
    centre = q * _ratio(_CENTRE, 0.180625 - q * q)
    flank = np.where(r <= 5, _ratio(_FLANK, r - 1.6), _ratio(_END, np.where(r < np.inf, r, 5.0) - 5))
    outside = np.select([tail > 0, tail == 0], [np.copysign(flank, q), np.copysign(np.inf, q)], np.nan)
    return np.where(np.abs(q) <= 0.425, centre, outside)
