"""Orthogonal polynomials of degree n at x, by their three-term recurrences (DLMF 18.9), in the operands' own dtype.

Where torch's out overload takes the degree as a tensor, it may hold floats: they are cut to integers. A negative degree
gives 0. Chebyshev polynomials of higher degree inside of [-1, 1] are trigonometric functions of arccos x (DLMF 18.5).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from delegraph.runtime.kernels import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import as_array, function_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import check_kind, check_result, compute_type, float_type, result_type
from delegraph.runtime.numpy_kernels.shapes import broadcast

from .library import kernel

Step = Callable[[int, Array, Array, Array], Array]
"""(k, x, P_k, P_{k-1}) -> P_{k+1}."""


@dataclass(frozen=True, slots=True)
class Polynomials:
    """P0 = 1, P1 = slope x + intercept, and the recurrence for the others."""

    slope: float
    intercept: float
    step: Step
    closed: Callable[[Array, Array], Array] | None = None
    """(n, x) -> P_n(x) for |x| ≤ 1, used from the degree `_CLOSED` on."""
    largest: Callable[[Any], float] = lambda dtype: np.inf
    """The largest degree whose values the dtype holds; beyond it they are NaN."""


_CLOSED: Final = 8


def _chebyshev(k: int, x: Array, current: Array, previous: Array) -> Array:
    return np.asarray((x + x) * current - previous)


def _legendre(k: int, x: Array, current: Array, previous: Array) -> Array:
    return np.asarray(((2 * k + 1) * x * current - k * previous) / (k + 1))


def _laguerre(k: int, x: Array, current: Array, previous: Array) -> Array:
    return np.asarray(((2 * k + (1 - x)) * current - k * previous) / (k + 1))


def _hermite_h(k: int, x: Array, current: Array, previous: Array) -> Array:
    return np.asarray((x + x) * current - 2 * k * previous)


def _hermite_he(k: int, x: Array, current: Array, previous: Array) -> Array:
    """The product and the difference rounded once, as by the fused operation that compilers make of them."""
    if x.dtype != np.float32:
        return np.asarray(x * current - k * previous)
    exact = x.astype(np.float64) * current
    return np.asarray(np.subtract(exact, x.dtype.type(k) * previous).astype(x.dtype))


def _hermite_limit(dtype: Any) -> float:
    return 128 if dtype == np.float32 else 512


def _alternating(n: Array) -> Array:
    return np.asarray(1 - 2 * (n % 2))


def _closed_t(n: Array, x: Array) -> Array:
    return np.asarray(np.cos(n * np.arccos(x)))


def _closed_u(n: Array, x: Array) -> Array:
    angle = np.arccos(x)
    end = np.where(x > 0, 1, _alternating(n)) * (n + 1)
    return np.asarray(np.where(np.abs(x) == 1, end, np.sin((n + 1) * angle) / np.sin(angle)))


def _closed_v(n: Array, x: Array) -> Array:
    angle = np.arccos(x)
    end = np.where(x > 0, 1, _alternating(n) * (2 * n + 1))
    return np.where(np.abs(x) == 1, end, np.cos((n + 0.5) * angle) / np.cos(angle / 2))


def _closed_w(n: Array, x: Array) -> Array:
    angle = np.arccos(x)
    end = np.where(x > 0, 2 * n + 1, _alternating(n))
    return np.where(np.abs(x) == 1, end, np.sin((n + 0.5) * angle) / np.sin(angle / 2))


_FAMILIES: Final[dict[str, Polynomials]] = {
    "chebyshev_polynomial_t": Polynomials(1, 0, _chebyshev, _closed_t),
    "chebyshev_polynomial_u": Polynomials(2, 0, _chebyshev, _closed_u),
    "chebyshev_polynomial_v": Polynomials(2, -1, _chebyshev, _closed_v),
    "chebyshev_polynomial_w": Polynomials(2, 1, _chebyshev, _closed_w),
    "hermite_polynomial_h": Polynomials(2, 0, _hermite_h, largest=_hermite_limit),
    "hermite_polynomial_he": Polynomials(1, 0, _hermite_he, largest=_hermite_limit),
    "laguerre_polynomial_l": Polynomials(-1, 1, _laguerre),
    "legendre_polynomial_p": Polynomials(1, 0, _legendre),
}


def _evaluate(family: Polynomials, shifted: bool, x: Array, degree: Array, out: Array) -> None:
    """Of 2x - 1 if `shifted`."""
    x = x + x - 1 if shifted else x
    n = np.where(np.isfinite(degree), degree, -1).astype(np.int64)
    n, x = (np.broadcast_to(array, out.shape) for array in (n, x))
    too_large = n > family.largest(out.dtype)
    closed = (n > _CLOSED) & (np.abs(x) <= 1) if family.closed is not None else np.zeros(out.shape, np.bool_)
    previous, current = np.ones_like(x), family.slope * x + family.intercept
    np.copyto(out, np.where(n < 0, 0, np.where(n == 0, 1, current)), casting="unsafe")
    recurrent = np.where(closed | too_large, 0, n)
    for k in range(1, int(recurrent.max(initial=0))):
        previous, current = current, family.step(k, x, current, previous)
        np.copyto(out, current, where=recurrent == k + 1)
        rest = recurrent > k + 1
        if not np.any(rest & (current == current)):  # NaN stays NaN
            np.copyto(out, np.nan, where=rest)
            break
    np.copyto(out, np.nan, where=too_large)
    if family.closed is not None and closed.any():
        np.copyto(out, family.closed(n, np.clip(x, -1, 1)), where=closed, casting="unsafe")


def _polynomial(
    family: Polynomials, shifted: bool, context: Context, x: Array | Scalar, n: Array | Scalar, out: Array
) -> BoundCall:
    dtype = float_type(result_type(x, n))
    check_kind(dtype, "f", "x")
    check_result(dtype, out)
    compute = compute_type(dtype)
    operands = (as_array(x, compute), as_array(n, compute))
    out = context.resize(out, broadcast(*(operand.shape for operand in operands)))
    return function_call(context, partial(_evaluate, family, shifted), operands, out, compute)


def _register(name: str, family: Polynomials, shifted: bool) -> None:
    for overload in ("out", "x_scalar_out", "n_scalar_out"):
        kernel(f"aten::special_{name}.{overload}")(partial(_polynomial, family, shifted))


for _name, _family in _FAMILIES.items():
    _register(_name, _family, shifted=False)
    if _name.startswith("chebyshev"):
        _register(f"shifted_{_name}", _family, shifted=True)
