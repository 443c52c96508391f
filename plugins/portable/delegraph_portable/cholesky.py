"""Cholesky factors A = L Lᴴ of positive-definite matrices, and systems with them."""

from __future__ import annotations

from functools import partial

import numpy as np

from delegraph.runtime.kernels import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context

from .library import kernel
from .matrices import adjoint, check_info, check_matrix, check_results, results_call, stacked_copy
from .triangular import solution_shape, solve_cholesky, solve_lower


def factor(a: Array, upper: bool) -> tuple[Array, Array]:
    """L, or Lᴴ, and zeros elsewhere; and `info` (*): 0, or the order of the first minor that is not positive.

    Only the lower triangle of `a` (*, n, n) is read, or the upper one.
    """
    low = stacked_copy(np.tril(adjoint(a) if upper else a))
    info = np.zeros(len(low), np.int32)
    _factor(low, info, 0)
    result: Array = np.tril(low).reshape(a.shape)
    return adjoint(result) if upper else result, info.reshape(a.shape[:-2])


def _factor(a: Array, info: Array, done: int) -> None:
    """Overwrite the lower triangle of `a` (batch, n, n), which follows `done` rows of the whole, with its factor."""
    n = a.shape[-1]
    if n == 0:
        return
    if n == 1:
        pivot = a[:, 0, 0].real
        info[(info == 0) & ~(pivot > 0)] = done + 1
        a[:, 0, 0] = np.sqrt(pivot)
        return
    half = n // 2
    _factor(a[:, :half, :half], info, done)
    rest = adjoint(a[:, half:, :half]).copy()
    solve_lower(a[:, :half, :half], rest, unit=False)
    below = adjoint(rest)
    a[:, half:, :half] = below
    a[:, half:, half:] -= below @ rest
    _factor(a[:, half:, half:], info, done + half)


_NOT_POSITIVE = "a matrix is not positive-definite"


@kernel("aten::linalg_cholesky_ex.L")
def cholesky_ex(context: Context, self: Array, upper: bool, check_errors: bool, L: Array, info: Array) -> BoundCall:
    check_matrix(self, "self", square=True)
    check_results(self, L)
    L, info = context.resize(L, self.shape), context.resize(info, self.shape[:-2])

    def function(a: Array) -> tuple[Array, Array]:
        low, failed = factor(a, upper)
        check_info(failed, _NOT_POSITIVE, check_errors)
        return low, failed

    return results_call(function, (self,), (L, info))


@kernel("aten::cholesky.out")
def cholesky(context: Context, self: Array, upper: bool, out: Array) -> BoundCall:
    """Refuses what is not positive-definite."""
    check_matrix(self, "self", square=True)
    check_results(self, out)
    out = context.resize(out, self.shape)

    def function(a: Array) -> tuple[Array]:
        low, failed = factor(a, upper)
        check_info(failed, _NOT_POSITIVE, True)
        return (low,)

    return results_call(function, (self,), (out,))


def _cholesky_solve(context: Context, self: Array, A: Array, upper: bool, out: Array) -> BoundCall:
    """X in (L Lᴴ) X = self, where A is L, or Lᴴ if `upper`."""
    shape = solution_shape(A, "A", self, "self")
    check_results(self, out)
    out = context.resize(out, shape)
    return results_call(lambda b, a: (solve_cholesky(a, b, upper),), (self, A), (out,))


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
    eye = np.eye(self.shape[-1], dtype=self.dtype)
    return results_call(partial(_inverse, upper, eye), (self,), (out,))


def _inverse(upper: bool, eye: Array, a: Array) -> tuple[Array]:
    return (solve_cholesky(a, eye, upper),)
