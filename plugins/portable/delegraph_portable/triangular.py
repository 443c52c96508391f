"""Systems with triangular matrices."""

from __future__ import annotations

from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.runtime.kernels import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_same_dtype
from delegraph.runtime.numpy_kernels.shapes import Shape, broadcast

from .library import kernel
from .matrices import adjoint, check_matrix, check_results, results_call, transpose

_LEAF: Final = 16
"""Rows that are eliminated one by one; above, halves are, and products do the work."""


def solve_lower(a: Array, x: Array, unit: bool) -> None:
    """Overwrite the right side `x` (*, n, k) with the solution of a @ x; only the lower triangle of `a` is read.

    `unit`: the diagonal is taken as ones. A zero in it gives infinities, as in torch.
    """
    n = a.shape[-1]
    if n > _LEAF:
        half = n // 2
        solve_lower(a[..., :half, :half], x[..., :half, :], unit)
        x[..., half:, :] -= a[..., half:, :half] @ x[..., :half, :]
        solve_lower(a[..., half:, half:], x[..., half:, :], unit)
        return
    for i in range(n):
        row = x[..., i, :]
        if not unit:
            row /= a[..., i, i, None]
        x[..., i + 1 :, :] -= a[..., i + 1 :, i, None] * row[..., None, :]


def solve(a: Array, b: Array, *, upper: bool, unit: bool = False) -> Array:
    """The solution of a @ x = b for triangles `a` (*, n, n) and `b` (*, n, k), whose batches broadcast."""
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    x = np.array(np.broadcast_to(b, (*batch, *b.shape[-2:])))
    if upper:
        solve_lower(a[..., ::-1, ::-1], x[..., ::-1, :], unit)
    else:
        solve_lower(a, x, unit)
    return x


def solution_shape(a: Array, a_name: str, b: Array, b_name: str, left: bool = True) -> Shape:
    """The shape of X in A X = B, or in X A = B."""
    check_matrix(a, a_name, square=True)
    check_matrix(b, b_name)
    check_same_dtype(b, b_name, a, a_name)
    if a.shape[-1] != b.shape[-2 if left else -1]:
        raise InvalidArgument(f"arguments {a_name!r} {a.shape} and {b_name!r} {b.shape} do not fit together")
    return (*broadcast(a.shape[:-2], b.shape[:-2]), *b.shape[-2:])


@kernel("aten::linalg_solve_triangular.out")
def solve_triangular(
    context: Context, self: Array, B: Array, upper: bool, left: bool, unitriangular: bool, out: Array
) -> BoundCall:
    """X in A X = B, or in X A = B."""
    shape = solution_shape(self, "self", B, "B", left)
    check_results(self, out)
    out = context.resize(out, shape)

    def function(a: Array, b: Array) -> tuple[Array]:
        if left:
            return (solve(a, b, upper=upper, unit=unitriangular),)
        return (transpose(solve(transpose(a), transpose(b), upper=not upper, unit=unitriangular)),)

    return results_call(function, (self, B), (out,))


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

    def function(b: Array, a: Array) -> tuple[Array, Array]:
        matrix = a.swapaxes(-1, -2) if transpose else a
        return solve(matrix, b, upper=upper != transpose, unit=unitriangular), a

    return results_call(function, (self, A), (X, M))


def solve_cholesky(factor: Array, b: Array, upper: bool) -> Array:
    """The solution of (L Lᴴ) x = b, where `factor` is L, or Lᴴ if `upper`."""
    low = adjoint(factor) if upper else factor
    return solve(adjoint(low), solve(low, b, upper=False), upper=True)
