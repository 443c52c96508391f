"""A = L D Lᵀ (or L D Lᴴ) of symmetric (or Hermitian) matrices, which need not be positive, and systems with them.

D has blocks of one or two rows. LAPACK's sytrf and hetrf do the work: pivots count from 1, those of a block of two are
negative and both the same, and rows of L that stand left of a later swap are not swapped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import DType, check_index, is_complex
from delegraph.runtime.numpy_kernels.shapes import check_shape

from .library import Routine, kernel, lapack
from .matrices import check_info, check_matrix, check_results, places, results_call, solution_shape, solve_each

_BLOCK: Final = 64
"""Columns that LAPACK works on at once, for which it wants memory (ilaenv's choice for sytrf)."""


def _routine(step: str, dtype: DType, hermitian: bool) -> Routine:
    """`step` is "trf" or "trs"."""
    return lapack(("he" if hermitian and is_complex(dtype) else "sy") + step, dtype)


@kernel("aten::linalg_ldl_factor_ex.out")
def ldl_factor_ex(
    context: Context, self: Array, hermitian: bool, check_errors: bool, LD: Array, pivots: Array, info: Array
) -> BoundCall:
    """Only the lower triangle is read."""
    check_matrix(self, "self", square=True)
    check_results(self, LD)
    outs = (
        context.resize(LD, self.shape),
        context.resize(pivots, self.shape[:-1]),
        context.resize(info, self.shape[:-2]),
    )
    trf = _routine("trf", self.dtype, hermitian)
    lwork = _BLOCK * max(1, self.shape[-1])

    def function(a: Array) -> Sequence[Array]:
        factors, swaps, failed = np.empty_like(a), np.zeros(a.shape[:-1], np.int64), np.zeros(a.shape[:-2], np.int64)
        for at in places(a):
            factors[at], swaps[at], failed[at] = trf(a[at], lower=1, lwork=lwork)
        check_info(failed, "a matrix is singular", check_errors)
        return np.tril(factors), swaps, failed

    return results_call(function, (self,), outs)


@kernel("aten::linalg_ldl_solve.out")
def ldl_solve(context: Context, LD: Array, pivots: Array, B: Array, hermitian: bool, out: Array) -> BoundCall:
    """X in A X = B."""
    shape = solution_shape(LD, "LD", B, "B")
    check_index(pivots, "pivots")
    check_shape(pivots, LD.shape[:-1], "pivots")
    check_results(LD, out)
    out = context.resize(out, shape)
    trs = _routine("trs", LD.dtype, hermitian)

    def solve(b: Array, factors: Array, swaps: Array) -> Array:
        x: Array = trs(factors, swaps, b, lower=1)[0]
        return x

    def function(factors: Array, swaps: Array, b: Array) -> tuple[Array]:
        _check_pivots(swaps, factors.shape[-1])
        return (solve_each(solve, b, factors, swaps),)

    return results_call(function, (LD, pivots, B), (out,))


def _check_pivots(pivots: Array, n: int) -> None:
    """Raise `InvalidArgument` unless LAPACK, which checks nothing, stays inside of the matrix with `pivots`."""
    if pivots.size and not 1 <= np.abs(pivots).min() <= np.abs(pivots).max() <= n:
        raise InvalidArgument(f"argument 'pivots' must hold magnitudes from 1 to {n}")
