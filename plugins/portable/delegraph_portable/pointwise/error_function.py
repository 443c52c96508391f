"""The error function, which NumPy lacks: x -> erf(scale * x).

float32: tanh(x P(x²)), where x P(x²) approximates atanh(erf(x)) with the smallest relative error of erf on |x| < 3.93,
beyond which erf rounds to ±1. `tools/erf_coefficients.py` of the distribution's sources makes P.
float64: the C library's erf, element by element: exact, and a vectorised rational approximation is no faster.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np

from delegraph.runtime.numpy_kernels.prepared import Array

_ATANH_ERF: Final = (
    1.41865571e-07,
    -5.66872049e-06,
    8.76389023e-05,
    -6.19789056e-04,
    -1.91825431e-04,
    1.02769053e-01,
    1.12837927,
)
"""P, highest power first."""


def erf(scale: float, squared: Array, x: Array, out: Array) -> None:
    """erf(scale * x) of float32 or float64 `x` into `out`, overwriting `squared`: of one shape and dtype."""
    if x.dtype != np.float32:
        scaled = (x * scale).reshape(-1).tolist()
        out[...] = np.fromiter(map(math.erf, scaled), np.float64, x.size).reshape(x.shape)
        return
    highest, *lower, constant = _coefficients(scale)
    np.square(x, squared)
    np.multiply(squared, highest, out)
    for coefficient in lower:
        np.add(out, coefficient, out)
        np.multiply(out, squared, out)
    np.add(out, constant, out)
    np.multiply(out, x, out)
    np.tanh(out, out)


@cache
def _coefficients(scale: float) -> tuple[Array, ...]:
    """Of P with x P(x²) = atanh(erf(scale * x)), highest power first. Largest relative error of erf: below 5e-7."""
    degree = len(_ATANH_ERF) - 1
    return tuple(np.array(c * scale ** (2 * (degree - i) + 1), np.float32) for i, c in enumerate(_ATANH_ERF))
