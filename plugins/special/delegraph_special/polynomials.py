"""Orthogonal polynomials of degree n at x, in float64 by `scipy.special.eval_*`, rounded once.

Where torch's out overload takes the degree as a tensor, it may hold floats: they are cut to integers. A negative degree
gives 0, and a value that the dtype does not hold NaN: where the recurrence that torch computes ends as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Final

import numpy as np

from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import as_array, function_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import (
    FLOAT64,
    DType,
    check_kind,
    check_result,
    compute_type,
    float_type,
    result_type,
)
from delegraph.runtime.numpy_kernels.shapes import broadcast

from .library import kernel, scipy_special

Family = Callable[[ModuleType, Array, Array], Array]
"""(scipy.special, degrees n ≥ 0, x) -> values."""

_CHEBYSHEV: Final[dict[str, Family]] = {
    "chebyshev_polynomial_t": lambda sp, n, x: sp.eval_chebyt(n, x),
    "chebyshev_polynomial_u": lambda sp, n, x: sp.eval_chebyu(n, x),
    # V and W are the difference and the sum of neighbouring U, as their definitions by sines and cosines say
    "chebyshev_polynomial_v": lambda sp, n, x: sp.eval_chebyu(n, x) - sp.eval_chebyu(n - 1, x),
    "chebyshev_polynomial_w": lambda sp, n, x: sp.eval_chebyu(n, x) + sp.eval_chebyu(n - 1, x),
}
_OTHERS: Final[dict[str, Family]] = {
    "hermite_polynomial_h": lambda sp, n, x: sp.eval_hermite(n, x),
    "hermite_polynomial_he": lambda sp, n, x: sp.eval_hermitenorm(n, x),
    "laguerre_polynomial_l": lambda sp, n, x: sp.eval_laguerre(n, x),
    "legendre_polynomial_p": lambda sp, n, x: sp.eval_legendre(n, x),
}


def _shifted(family: Family) -> Family:
    """At 2x - 1."""
    return lambda sp, n, x: family(sp, n, x + x - 1)


def _polynomial(family: Family, context: Context, x: Array | Scalar, n: Array | Scalar, out: Array) -> BoundCall:
    dtype = float_type(result_type(x, n))
    check_kind(dtype, "f", "x")
    check_result(dtype, out)
    operands = (as_array(x, FLOAT64), as_array(n, FLOAT64))
    out = context.resize(out, broadcast(*(operand.shape for operand in operands)))
    evaluate = partial(_evaluate, partial(family, scipy_special()), compute_type(dtype))
    return function_call(context, evaluate, operands, out, FLOAT64)


def _evaluate(values_of: Callable[[Array, Array], Array], dtype: DType, x: Array, degree: Array, out: Array) -> None:
    n = np.where(np.isfinite(degree), degree, -1).astype(np.int64)
    values = values_of(np.maximum(n, 0), x)
    finite = np.abs(values) <= np.finfo(dtype).max
    np.copyto(out, np.where(n < 0, 0, np.where(finite, values, np.nan)))


def _register(name: str, family: Family) -> None:
    for overload in ("out", "x_scalar_out", "n_scalar_out"):
        kernel(f"aten::special_{name}.{overload}")(partial(_polynomial, family))


for _name, _family in _CHEBYSHEV.items():
    _register(f"shifted_{_name}", _shifted(_family))
for _name, _family in (_CHEBYSHEV | _OTHERS).items():
    _register(_name, _family)
