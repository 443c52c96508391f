"""erf: its coefficients are those that their script makes, and it is as exact as is said of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from plugins.portable.tools import erf_coefficients

from delegraph_portable.pointwise import error_function


def erf(x: np.ndarray, scale: float) -> np.ndarray:
    out = np.empty_like(x)
    error_function.erf(scale, np.empty_like(x), x, out)
    return out


def test_the_coefficients_are_those_of_their_script() -> None:
    assert erf_coefficients.coefficients() == error_function._ATANH_ERF


@pytest.mark.parametrize("scale", [1.0, math.sqrt(0.5)])
@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 5e-7), (np.float64, 1e-15)])
def test_the_largest_relative_error(dtype: type, limit: float, scale: float) -> None:
    x = np.concatenate([np.geomspace(1e-6, 1, 5000), np.linspace(1, 10, 5000)]).astype(dtype)
    exact = np.array([math.erf(v * scale) for v in x.astype(np.float64)])
    for sign in (1, -1):
        np.testing.assert_allclose(erf(sign * x, scale).astype(np.float64), sign * exact, limit)


def test_its_edges() -> None:
    for dtype in (np.float32, np.float64):
        x = np.array([math.nan, math.inf, -math.inf, 0.0, -0.0], dtype)
        np.testing.assert_array_equal(erf(x, 1.0), np.array([math.nan, 1, -1, 0, 0], dtype))
