"""Nothing -> the coefficients of `error_function.py`: of the P for which tanh(x P(x²)) is closest to erf(x).

    python plugins/portable/tools/erf_coefficients.py

Remez's exchange algorithm with 30 digits: among the polynomials of the degree the one whose largest relative error of
erf on (0, LIMIT] is smallest is that whose error takes its largest value with alternating signs at degree + 2 places.
Needs mpmath.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mpmath
from mpmath import mpf

DEGREE = 6
LIMIT = 3.93
"""Beyond it erf rounds to 1 in float32: 1 - erf(3.93) is half of float32's last digit."""
DIGITS = 9
"""Decimal digits that determine a float32."""
POINTS = 400
"""Where the error's extremes are looked for."""


def coefficients() -> tuple[float, ...]:
    """Of P, highest power first, rounded to `DIGITS`."""
    with mpmath.workdps(30):
        places = [LIMIT * mpmath.sin(mpmath.pi * (2 * i + 1) / (4 * DEGREE + 8)) ** 2 for i in range(DEGREE + 2)]
        grid = [LIMIT * mpf(i) / POINTS for i in range(1, POINTS + 1)]
        for _ in range(20):
            polynomial, level = _through(places)
            error = _error(polynomial)
            errors = [error(x) for x in grid]
            places = _extremes(grid, errors)
            if max(map(abs, errors)) < abs(level) * (1 + mpf(10) ** -3):
                break
        return tuple(float(mpmath.nstr(c, DIGITS)) for c in reversed(polynomial))


def _weight(x: mpf) -> mpf:
    """How much a change of atanh(erf(x)) changes erf(x), relatively."""
    value = mpmath.erf(x)
    return (1 - value**2) / value


def _target(x: mpf) -> mpf:
    """atanh(erf(x)), with the digits of 1 - erf(x)."""
    return mpmath.log((1 + mpmath.erf(x)) / mpmath.erfc(x)) / 2


def _through(places: Sequence[mpf]) -> tuple[list[mpf], mpf]:
    """The polynomial, lowest power first, whose error is ±level at `places`, alternating; and level."""
    rows = [[_weight(x) * x ** (2 * k + 1) for k in range(DEGREE + 1)] + [mpf((-1) ** i)] for i, x in enumerate(places)]
    *polynomial, level = mpmath.lu_solve(mpmath.matrix(rows), [_weight(x) * _target(x) for x in places])
    return polynomial, level


def _error(polynomial: Sequence[mpf]) -> Callable[[mpf], mpf]:
    return lambda x: _weight(x) * (x * mpmath.polyval(polynomial[::-1], x * x) - _target(x))


def _extremes(grid: Sequence[mpf], errors: Sequence[mpf]) -> list[mpf]:
    """Where the error is largest between its changes of sign."""
    best: list[int] = []
    for i, error in enumerate(errors):
        if best and error * errors[best[-1]] > 0:
            best[-1] = max(best[-1], i, key=lambda j: abs(errors[j]))
        else:
            best.append(i)
    while len(best) > DEGREE + 2:
        best.pop(0 if abs(errors[best[0]]) < abs(errors[best[-1]]) else -1)
    return [grid[i] for i in best]


if __name__ == "__main__":
    print(*coefficients(), sep=",\n")
