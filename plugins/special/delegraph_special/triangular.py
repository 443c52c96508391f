"""Systems with triangular matrices (BLAS's trsm)."""

from __future__ import annotations

from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context

from .library import blas, kernel
from .matrices import check_results, results_call, solution_shape, solve_each


@kernel("aten::linalg_solve_triangular.out")
def solve_triangular(
    context: Context, self: Array, B: Array, upper: bool, left: bool, unitriangular: bool, out: Array
) -> BoundCall:
    """X in A X = B, or in X A = B."""
    shape = solution_shape(self, "self", B, "B", left)
    check_results(self, out)
    out = context.resize(out, shape)
    trsm = blas("trsm", self.dtype)

    def solve(b: Array, a: Array) -> Array:
        x: Array = trsm(1, a, b, side=not left, lower=not upper, diag=unitriangular)
        return x

    return results_call(lambda a, b: (solve_each(solve, b, a),), (self, B), (out,))


@kernel("aten::triangular_solve.X")
def triangular_solve(
    context: Context,
    self: Array,
    A: Array,
    upper: bool,
    transpose: bool,
    unitriangular: bool,
    X: Array,
    M: Array,
) -> BoundCall:
    """X in A X = self, or in Aᵀ X = self; and A, for each solution."""
    shape = solution_shape(A, "A", self, "self")
    check_results(self, X, M)
    X, M = context.resize(X, shape), context.resize(M, (*shape[:-2], *A.shape[-2:]))
    trsm = blas("trsm", self.dtype)

    def solve(b: Array, a: Array) -> Array:
        x: Array = trsm(1, a, b, lower=not upper, trans_a=transpose, diag=unitriangular)
        return x

    return results_call(lambda b, a: (solve_each(solve, b, a), a), (self, A), (X, M))
