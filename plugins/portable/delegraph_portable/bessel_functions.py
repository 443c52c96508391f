"""Bessel functions of the orders 0 and 1, and the Airy function Ai, of float64 arrays with one dim.

Between fixed limits they are Chebyshev series; beyond, Chebyshev series of what their asymptotic expansions leave
when the oscillation or the exponential is taken out (DLMF 9.7, 10.17, 10.40).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from delegraph.runtime.numpy_kernels.prepared import Array

from . import bessel_coefficients as table
from .chebyshev import chebyshev

Function = Callable[[Array], Array]

_J_NEAR: Final = (table.J0_NEAR, table.J1_NEAR)
_Y_NEAR: Final = (table.Y0_NEAR, table.Y1_NEAR)
_PHASES: Final = ((table.P0_FAR, table.Q0_FAR), (table.P1_FAR, table.Q1_FAR))
_I: Final = ((table.I0_NEAR, table.I0_FAR), (table.I1_NEAR, table.I1_FAR))
_K: Final = ((table.K0_NEAR, table.K0_FAR), (table.K1_NEAR, table.K1_FAR))


def by_region(x: Array, *regions: tuple[Array, Function]) -> Array:
    """Each region's function of the elements that its mask chooses; NaN elsewhere."""
    result = np.full_like(x, np.nan)
    for mask, function in regions:
        if mask.any():
            result[mask] = function(x[mask])
    return result


# ---- J and Y ----------------------------------------------------------------------------------------


def bessel_j(order: int, x: Array) -> Array:
    magnitude = np.abs(x)
    value = by_region(magnitude, (magnitude <= 8, partial(_j_near, order)), (magnitude > 8, partial(_j_far, order)))
    return value * np.copysign(1.0, x) if order else value


def bessel_y(order: int, x: Array) -> Array:
    """-inf at 0, NaN below."""
    value = by_region(x, ((x >= 0) & (x <= 8), partial(_y_near, order)), (x > 8, partial(_y_far, order)))
    return value


def _j_near(order: int, x: Array) -> Array:
    return chebyshev(_J_NEAR[order], x * x / 32 - 1) * (x if order else 1)


def _y_near(order: int, x: Array) -> Array:
    regular = chebyshev(_Y_NEAR[order], x * x / 32 - 1)
    if order == 0:
        return regular + 2 / np.pi * np.log(x) * _j_near(0, x)
    logarithmic = np.where(x > 0, np.log(x) * _j_near(1, x), 0)
    return x * regular + 2 / np.pi * (logarithmic - 1 / np.abs(x))


def _phases(order: int, x: Array) -> tuple[Array, Array, Array, Array]:
    """P, Q, cos χ and sin χ, χ = x - (2 order + 1) π/4, by the addition theorem: no digit of x is lost."""
    t = 2 * (8 / x) ** 2 - 1
    p, q = (chebyshev(c, t) for c in _PHASES[order])
    cos, sin = np.cos(x) * np.sqrt(0.5), np.sin(x) * np.sqrt(0.5)
    if order == 0:
        return p, q / x, cos + sin, sin - cos
    return p, q / x, sin - cos, -(sin + cos)


def _j_far(order: int, x: Array) -> Array:
    p, q, cos, sin = _phases(order, x)
    return np.asarray(np.sqrt(2 / np.pi / x) * (p * cos - q * sin))


def _y_far(order: int, x: Array) -> Array:
    p, q, cos, sin = _phases(order, x)
    return np.asarray(np.sqrt(2 / np.pi / x) * (p * sin + q * cos))


def spherical_j0(x: Array) -> Array:
    """sin(x) / x; 1 at 0 and 0 at infinity."""
    value = np.sin(x) / x
    return np.where(x == 0, 1.0, np.where(np.isinf(x), 0.0, value))


# ---- I and K ----------------------------------------------------------------------------------------


def scaled_i(order: int, x: Array) -> Array:
    """exp(-|x|) I(x)."""
    magnitude = np.abs(x)
    near, far = _I[order]
    value = by_region(
        magnitude,
        (magnitude <= 8, lambda m: chebyshev(near, m / 4 - 1) * (m if order else 1)),
        (magnitude > 8, lambda m: chebyshev(far, 16 / m - 1) / np.sqrt(m)),
    )
    return value * np.copysign(1.0, x) if order else value


def modified_i(order: int, x: Array) -> Array:
    return np.asarray(np.exp(np.abs(x)) * scaled_i(order, x))


def modified_k(order: int, x: Array, scaled: bool) -> Array:
    """K(x), times exp(x) if `scaled`; inf at 0, NaN below."""
    near = (x > 0) & (x <= 2)
    value = by_region(x, (near, partial(_k_near, order)), (x > 2, partial(_k_far, order)))
    value = value * np.where(near, np.exp(x) if scaled else 1.0, 1.0 if scaled else np.exp(-x))
    return np.where(x == 0, np.inf, value)


def _k_near(order: int, x: Array) -> Array:
    regular, logarithm = chebyshev(_K[order][0], x * x / 2 - 1), np.log(x / 2) * modified_i(order, x)
    return np.asarray(regular / x + logarithm if order else regular - logarithm)


def _k_far(order: int, x: Array) -> Array:
    return np.asarray(chebyshev(_K[order][1], 4 / x - 1) / np.sqrt(x))


# ---- Ai ---------------------------------------------------------------------------------------------


def airy_ai(x: Array) -> Array:
    """NaN at both infinities, as in torch."""
    return by_region(
        x,
        ((x >= -4) & (x <= 2), lambda m: chebyshev(table.AIRY_NEAR, (m + 1) / 3)),
        ((x > 2) & (x < np.inf), _airy_positive),
        ((x < -4) & (x > -np.inf), _airy_negative),
    )


def _zeta(x: Array | float) -> Array:
    return np.asarray(2 / 3 * x * np.sqrt(x))


def _airy_positive(x: Array) -> Array:
    zeta = _zeta(x)
    return np.asarray(chebyshev(table.AIRY_POSITIVE, 2 * _zeta(2.0) / zeta - 1) * np.exp(-zeta) / np.sqrt(np.sqrt(x)))


def _airy_negative(x: Array) -> Array:
    zeta = _zeta(-x)
    t = 2 * (_zeta(4.0) / zeta) ** 2 - 1
    cos, sin = np.cos(zeta), np.sin(zeta)
    p, q = chebyshev(table.AIRY_P, t), chebyshev(table.AIRY_Q, t) / zeta
    return np.asarray((p * (cos + sin) + q * (sin - cos)) / np.sqrt(2 * np.pi * np.sqrt(-x)))


UNARY: Final[dict[str, Function]] = {
    "i0": partial(modified_i, 0),
    "special_airy_ai": airy_ai,
    "special_bessel_j0": partial(bessel_j, 0),
    "special_bessel_j1": partial(bessel_j, 1),
    "special_bessel_y0": partial(bessel_y, 0),
    "special_bessel_y1": partial(bessel_y, 1),
    "special_i0e": partial(scaled_i, 0),
    "special_i1": partial(modified_i, 1),
    "special_i1e": partial(scaled_i, 1),
    "special_modified_bessel_i0": partial(modified_i, 0),
    "special_modified_bessel_i1": partial(modified_i, 1),
    "special_modified_bessel_k0": partial(modified_k, 0, scaled=False),
    "special_modified_bessel_k1": partial(modified_k, 1, scaled=False),
    "special_scaled_modified_bessel_k0": partial(modified_k, 0, scaled=True),
    "special_scaled_modified_bessel_k1": partial(modified_k, 1, scaled=True),
    "special_spherical_bessel_j0": spherical_j0,
}
"""Operator -> its function."""
