"""Cholesky factors A = L Lᴴ of positive-definite matrices, and systems with them (LAPACK's potrf, potrs)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import DType

from .library import kernel, lapack
from .matrices import check_info, check_matrix, check_results, places, results_call, solution_shape, solve_each

_NOT_POSITIVE = "a matrix is not positive-definite"


def _factorization(dtype: DType, upper: bool) -> Callable[[Array], tuple[Array, Array]]:
    """A (*, n, n), of which one triangle is read, -> L, or Lᴴ, with zeros elsewhere; and `info` (*): 0, or the order
    of the first minor that is not positive."""
    potrf = lapack("potrf", dtype)

    def factor(a: Array) -> tuple[Array, Array]:
        factors, info = np.empty_like(a), np.zeros(a.shape[:-2], np.int32)
        for at in places(a):
            factors[at], info[at] = potrf(a[at], lower=not upper, clean=1)
        return factors, info

    return factor


@kernel("aten::linalg_cholesky_ex.L")
def cholesky_ex(context: Context, self: Array, upper: bool, check_errors: bool, L: Array, info: Array) -> BoundCall:
    check_matrix(self, "self", square=True)
    check_results(self, L)
    L, info = context.resize(L, self.shape), context.resize(info, self.shape[:-2])
    factor = _factorization(self.dtype, upper)

    def function(a: Array) -> tuple[Array, Array]:
        low, failed = factor(a)
        check_info(failed, _NOT_POSITIVE, check_errors)
        return low, failed

    return results_call(function, (self,), (L, info))


@kernel("aten::cholesky.out")
def cholesky(context: Context, self: Array, upper: bool, out: Array) -> BoundCall:
    """Refuses matrices that are not positive-definite."""
    check_matrix(self, "self", square=True)
    check_results(self, out)
    out = context.resize(out, self.shape)
    factor = _factorization(self.dtype, upper)

    def function(a: Array) -> tuple[Array]:
        low, failed = factor(a)
        check_info(failed, _NOT_POSITIVE, True)
        return (low,)

    return results_call(function, (self,), (out,))


def _solver(dtype: DType, upper: bool) -> Callable[[Array, Array], Array]:
    """(B, L, or Lᴴ if `upper`) -> X in (L Lᴴ) X = B."""
    potrs = lapack("potrs", dtype)

    def solve(b: Array, factor: Array) -> Array:
        x: Array = potrs(factor, b, lower=not upper)[0]
        return x

    return lambda b, factors: solve_each(solve, b, factors)


def _cholesky_solve(context: Context, self: Array, A: Array, upper: bool, out: Array) -> BoundCall:
    """X in (L Lᴴ) X = self, where A is L, or Lᴴ if `upper`."""
    shape = solution_shape(A, "A", self, "self")
    check_results(self, out)
    out = context.resize(out, shape)
    solve = _solver(self.dtype, upper)
    return results_call(lambda b, a: (solve(b, a),), (self, A), (out,))


kernel("aten::_cholesky_solve_helper.out")(_cholesky_solve)


@kernel("aten::cholesky_solve.out")
def cholesky_solve(context: Context, self: Array, input2: Array, upper: bool, out: Array) -> BoundCall:
    return _cholesky_solve(context, self, input2, upper, out)


@kernel("aten::cholesky_inverse.out")
def cholesky_inverse(context: Context, self: Array, upper: bool, out: Array) -> BoundCall:
    """The inverse of L Lᴴ, where `self` is L, or Lᴴ if `upper`."""
    check_matrix(self, "self", square=True)
    check_results(self, out)
    out = context.resize(out, self.shape)
    eye, solve = np.eye(self.shape[-1], dtype=self.dtype), _solver(self.dtype, upper)
    return results_call(lambda a: (solve(eye, a),), (self,), (out,))
