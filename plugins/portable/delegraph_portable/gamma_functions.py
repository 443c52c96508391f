"""The gamma function's logarithm and derivatives, Hurwitz's zeta and the incomplete gamma functions, in float64.

Functions of one tensor take arrays with one dim.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np

from delegraph.runtime.numpy_kernels.prepared import Array

from .bessel_functions import by_region
from .chebyshev import chebyshev

# fmt: off
_LGAMMA: Final = (
    0.41418612492156676, 0.16322170068760064, -0.008658972394126285, 0.0006727515726001485,
    -6.139556963628233e-05, 6.110065797003576e-06, -6.410003033826223e-07, 6.962242692768951e-08,
    -7.747248733788217e-09, 8.774075140687239e-10, -1.0070266869830198e-10, 1.1678602130652374e-11,
    -1.3656871334744932e-12, 1.6079351149711552e-13, -1.9039501088488732e-14, 2.2653768767833064e-15,
    -2.706656814831896e-16, 3.245660731626191e-17, -3.904483378457447e-18, 4.710435641256405e-19,
)
# fmt: on
"""ln Γ(2 + u) / u, |u| ≤ ½, as a Chebyshev series in 2u; computed for this module with 40 digits."""

_BERNOULLI: Final = (
    1 / 6,
    -1 / 30,
    1 / 42,
    -1 / 30,
    5 / 66,
    -691 / 2730,
    7 / 6,
    -3617 / 510,
    43867 / 798,
    -174611 / 330,
)
"""B2, B4 …"""

_ENOUGH: Final = 13.0
"""From here on the asymptotic series of ln Γ and ψ give all digits in seven terms."""


# ---- ln Γ -------------------------------------------------------------------------------------------


def lgamma(x: Array) -> Array:
    """ln |Γ(x)|; inf at 0, at negative integers and at both infinities."""
    pole = (x <= 0) & (x == np.floor(x))
    value = by_region(
        x,
        (x >= _ENOUGH, lambda v: (v - 0.5) * np.log(v) - v + 0.5 * math.log(2 * math.pi) + _stirling(v)),
        ((x > 0) & (x < _ENOUGH), _lgamma_near),
        ((x < 0) & ~pole, _lgamma_reflected),
    )
    return np.where(pole | np.isinf(x), np.inf, value)


def _stirling(x: Array) -> Array:
    """ln Γ(x) less its first three terms: Σ B2k / (2k (2k - 1) x^(2k-1)) (DLMF 5.11.1)."""
    reciprocal = 1 / (x * x)
    total = 0.0 * x
    for k in range(7, 0, -1):
        total = total * reciprocal + _BERNOULLI[k - 1] / (2 * k * (2 * k - 1))
    return total / x


def _lgamma_near(x: Array) -> Array:
    """ln Γ(n + u), |u| ≤ ½, from ln Γ(2 + u) = u R(u): u is exact, so nothing is lost near the zeros at 1 and 2."""
    n = np.rint(x)
    u = x - n
    factors = np.ones_like(x)
    for k in range(2, int(_ENOUGH) + 1):
        np.multiply(factors, u + k, factors, where=n > k)
    down = np.where(n == 0, u * (1 + u), np.where(n == 1, 1 + u, 1.0))
    return np.asarray(_lgamma_of_two_and(u) + np.log(factors) - np.log(down))


def _lgamma_of_two_and(u: Array) -> Array:
    return u * chebyshev(_LGAMMA, 2 * u)


def _lgamma_reflected(x: Array) -> Array:
    """ln Γ(x) + ln Γ(1 - x) = ln(π / |sin πx|), the sine of what is left of x beside an integer."""
    return np.asarray(math.log(math.pi) - np.log(np.abs(np.sin(np.pi * (x - np.rint(x))))) - lgamma(1 - x))


# ---- ψ and its derivatives --------------------------------------------------------------------------


def digamma(x: Array) -> Array:
    """∓inf at ±0, NaN at negative integers."""
    value = by_region(
        x,
        (x > 0, _digamma_positive),
        ((x < 0) & (x != np.floor(x)), lambda v: _digamma_positive(1 - v) - np.pi / np.tan(np.pi * (v - np.rint(v)))),
    )
    return np.where(x == 0, np.copysign(np.inf, -x), value)


def _digamma_positive(x: Array) -> Array:
    """ψ(x) = ψ(x + 1) - 1/x up to where ln x - 1/2x - Σ B2k / (2k x^2k) holds (DLMF 5.11.2)."""
    total = np.zeros_like(x)
    while (near := x < _ENOUGH).any():
        total -= np.where(near, 1 / x, 0)
        x = np.where(near, x + 1, x)
    reciprocal = 1 / (x * x)
    series = np.zeros_like(x)
    for k in range(7, 0, -1):
        series = (series + _BERNOULLI[k - 1] / (2 * k)) * reciprocal
    return np.asarray(total + np.log(x) - 0.5 / x - series)


def polygamma(n: int, x: Array) -> Array:
    """The n-th derivative of ψ: (-1)^(n+1) n! ζ(n + 1, x) (DLMF 25.11.12)."""
    if n == 0:
        return digamma(x)
    factorial = float(math.factorial(n)) if n <= 170 else math.inf
    return (1 if n % 2 else -1) * factorial * zeta(np.full_like(x, n + 1), x)


# ---- ζ ----------------------------------------------------------------------------------------------


def zeta(s: Array, q: Array) -> Array:
    """Hurwitz's Σ (k + q)^-s by Euler's and Maclaurin's formula (DLMF 25.11.28).

    inf at s = 1 and where q is 0 or a negative integer; NaN for s < 1, and for other q < 0 unless s is an integer.
    """
    undefined = ~(s >= 1) | ((q < 0) & (s != np.floor(s))) | (q != q)
    pole = (s >= 1) & ((s == 1) | ((q <= 0) & (q == np.floor(q))))
    s, q = (np.where(undefined | pole, safe, v) for v, safe in ((s, 2.0), (q, 1.0)))
    terms = 10 + np.maximum(np.ceil(-q), 0)
    total = np.zeros_like(q)
    for k in range(int(terms.max(initial=0))):
        np.add(total, (q + k) ** -s, total, where=k < terms)
    a = q + terms
    power = a**-s
    total += power * (a / (s - 1) + 0.5)
    factor = s / a
    for k, bernoulli in enumerate(_BERNOULLI, 1):
        total += np.where(power > 0, power * factor * (bernoulli / math.factorial(2 * k)), 0)
        factor = factor * ((s + (2 * k - 1)) / a) * ((s + 2 * k) / a)
    infinite = np.isposinf(s) | np.isposinf(q)
    return np.select([pole, undefined, infinite], [np.inf, np.nan, _at_infinity(s, q)], total)


def _at_infinity(s: Array, q: Array) -> Array:
    """Σ (k + q)^-s where s or q is infinite: the limit of its first term."""
    return np.where(np.isposinf(q), 0.0, np.where(q < 1, np.inf, np.where(q == 1, 1.0, 0.0)))


# ---- incomplete gamma functions ---------------------------------------------------------------------


def igamma(a: Array, x: Array) -> Array:
    """P(a, x) = ∫₀ˣ t^(a-1) exp(-t) dt / Γ(a). NaN for negative arguments."""
    return _incomplete(a, x)[0]


def igammac(a: Array, x: Array) -> Array:
    """Q(a, x) = 1 - P(a, x)."""
    return _incomplete(a, x)[1]


_LARGE: Final = 100.0
"""From this `a` on the integral is taken by quadrature; below it series and continued fraction end soon."""


def _incomplete(a: Array, x: Array) -> tuple[Array, Array]:
    lower, upper = np.full_like(x, np.nan), np.full_like(x, np.nan)
    zero_or_one = (
        ((a == 0) & (x > 0), 1.0),
        ((a > 0) & (x == 0), 0.0),
        (np.isposinf(a) & (x >= 0) & (x < np.inf), 0.0),
        ((a > 0) & (a < np.inf) & np.isposinf(x), 1.0),
    )
    for mask, value in zero_or_one:
        lower[mask], upper[mask] = value, 1 - value
    inside = (a > 0) & (a < np.inf) & (x > 0) & (x < np.inf)
    large = inside & (a >= _LARGE)
    by_fraction = inside & ~large & (x > np.maximum(a + 1, 2))
    small = inside & ~large & ~by_fraction
    by_upper_series = small & (a < np.where(x > 0.5, 1, -0.4 / np.log(np.minimum(x, 0.5))))
    by_lower_series = small & ~by_upper_series
    for mask, function, is_lower in (
        (by_lower_series, _lower_series, True),
        (by_upper_series, _upper_series, False),
        (by_fraction, _upper_fraction, False),
    ):
        if mask.any():
            part = function(a[mask], x[mask])
            lower[mask], upper[mask] = (part, 1 - part) if is_lower else (1 - part, part)
    if large.any():
        lower[large], upper[large] = _by_quadrature(a[large], x[large])
    return lower, upper


def _weight(a: Array, x: Array) -> Array:
    """x^a exp(-x) / Γ(a), from 10 on around its maximum at x = a, where it is √(a/2π) / exp(Stirling's series)."""
    plain = np.exp(a * np.log(x) - x - lgamma(a))
    large = np.maximum(a, 10.0)
    delta = (x - large) / large
    around = np.exp(large * (np.log1p(delta) - delta) - _stirling(np.maximum(large, _ENOUGH))) * np.sqrt(
        large / (2 * np.pi)
    )
    return np.where(a >= _ENOUGH, around, plain)


def _lower_series(a: Array, x: Array) -> Array:
    """P = weight / a Σ x^n / ((a + 1) … (a + n)) (DLMF 8.11.4)."""
    term, total, n = np.ones_like(x), np.ones_like(x), 0
    while (term > total * 1e-17).any():
        n += 1
        term = term * x / (a + n)
        total = total + term
    return np.minimum(_weight(a, x) * total / a, 1)


def _upper_series(a: Array, x: Array) -> Array:
    """Q = 1 - x^a/Γ(a+1) - x^a/Γ(a) Σ (-x)^n / (n! (a + n)) (DLMF 8.7.1), where 1 - P would cancel."""
    term, total = np.ones_like(x), np.zeros_like(x)
    for n in range(1, 32):
        term = term * -x / n
        total = total + term / (a + n)
    log_power = a * np.log(x)
    near = np.abs(a) <= 0.5
    log_gamma = np.where(near, _lgamma_of_two_and(np.where(near, a, 0)) - np.log1p(np.where(near, a, 0)), lgamma(1 + a))
    return np.asarray(-np.expm1(log_power - log_gamma) - np.exp(log_power - lgamma(a)) * total)


def _upper_fraction(a: Array, x: Array) -> Array:
    """Q = weight / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / …)) (DLMF 8.9.2), by Lentz's method."""
    tiny = 1e-300
    b = x + 1 - a
    c, d = np.full_like(x, 1 / tiny), 1 / np.where(b == 0, tiny, b)
    h, n = d.copy(), 0
    change = np.zeros_like(x)
    while (np.abs(change - 1) > 3e-16).any() and n < 1000:
        n += 1
        numerator = n * (a - n)
        b = b + 2
        d, c = numerator * d + b, b + numerator / c
        d, c = 1 / np.where(d == 0, tiny, d), np.where(c == 0, tiny, c)
        change = c * d
        h = h * change
    return _weight(a, x) * h


@cache
def _nodes() -> tuple[Array, Array]:
    """Gauss's and Legendre's nodes and weights on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(48)
    return (nodes + 1) / 2, weights / 2


def _by_quadrature(a: Array, x: Array) -> tuple[Array, Array]:
    """P and Q by the integral from x away from the maximum, to where nothing is left of it."""
    above = x >= a
    width = 9 * np.sqrt(a)
    end = np.where(above, np.maximum(a, x) + width + 40, np.maximum(np.minimum(a, x) - width, 0))
    integral = np.zeros_like(x)
    for node, weight in zip(*_nodes(), strict=True):
        t = x + (end - x) * node
        integral += weight * np.where(t > 0, _weight(a, np.maximum(t, 1e-300)) / np.maximum(t, 1e-300), 0)
    part = np.abs(end - x) * integral
    return np.where(above, 1 - part, part), np.where(above, part, 1 - part)
