"""LU factors, and what follows from them: solutions of systems, inverses, determinants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.runtime.kernels import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_index, check_kind, real_type
from delegraph.runtime.numpy_kernels.shapes import check_shape

from .library import kernel
from .lu_factorization import LU, factor
from .matrices import (
    check_info,
    check_matrix,
    check_results,
    check_shape_of_matrix,
    diagonal,
    is_vector,
    results_call,
)
from .triangular import solution_shape

_SINGULAR = "a matrix is singular"
_EMPTY = np.zeros(0)


# ---- factors ----------------------------------------------------------------------------------------


@kernel("aten::linalg_lu_factor_ex.out")
def lu_factor_ex(
    context: Context, A: Array, pivot: bool, check_errors: bool, LU: Array, pivots: Array, info: Array
) -> BoundCall:
    """L and U in one matrix, pivots counted from 1, and where U has its first zero on the diagonal, from 1."""
    check_matrix(A, "A")
    check_results(A, LU)
    outs = (
        context.resize(LU, A.shape),
        context.resize(pivots, (*A.shape[:-2], min(A.shape[-2:]))),
        context.resize(info, A.shape[:-2]),
    )

    def function(a: Array) -> Sequence[Array]:
        factors, failed = factor(a, pivot)
        check_info(failed, _SINGULAR, check_errors)
        return factors.packed, factors.pivots + 1, failed

    return results_call(function, (A,), outs)


def _resize_factors(
    context: Context, a: Array, P: Array, L: Array, U: Array, permutation: bool, data: bool
) -> tuple[Array, Array, Array]:
    """Outputs that are not asked for have no elements."""
    *batch, m, n = a.shape
    k = min(m, n)
    return (
        context.resize(P, (*batch, m, m) if permutation else (0,)),
        context.resize(L, (*batch, m, k) if data else (0,)),
        context.resize(U, (*batch, k, n) if data else (0,)),
    )


def _unpack(factors: LU, permutation: bool, data: bool) -> Sequence[Array]:
    return (
        factors.permutation if permutation else _EMPTY,
        *((factors.lower, factors.upper) if data else (_EMPTY, _EMPTY)),
    )


@kernel("aten::linalg_lu.out")
def lu(context: Context, A: Array, pivot: bool, P: Array, L: Array, U: Array) -> BoundCall:
    """A = P L U; without pivots P is empty."""
    check_matrix(A, "A")
    check_results(A, L, U)
    outs = _resize_factors(context, A, P, L, U, pivot, True)
    return results_call(lambda a: _unpack(factor(a, pivot)[0], pivot, True), (A,), outs)


@kernel("aten::lu_unpack.out")
def lu_unpack(
    context: Context,
    LU_data: Array,
    LU_pivots: Array,
    unpack_data: bool,
    unpack_pivots: bool,
    P: Array,
    L: Array,
    U: Array,
) -> BoundCall:
    """P, L and U apart. Nothing is computed, so the dtype may be any but float8 and unsigned of more than 8 bits."""
    check_shape_of_matrix(LU_data, "LU_data")
    check_kind(LU_data.dtype, "bifc", "LU_data")
    check_results(LU_data, P, L, U)
    check_index(LU_pivots, "LU_pivots")
    check_shape(LU_pivots, (*LU_data.shape[:-2], min(LU_data.shape[-2:])), "LU_pivots")
    outs = _resize_factors(context, LU_data, P, L, U, unpack_pivots, unpack_data)

    def function(packed: Array, pivots: Array) -> Sequence[Array]:
        return _unpack(LU(packed, _from_zero(pivots, packed, "LU_pivots")), unpack_pivots, unpack_data)

    return results_call(function, (LU_data, LU_pivots), outs)


def _from_zero(pivots: Array, packed: Array, name: str) -> Array:
    if pivots.dtype != np.int32:
        raise InvalidType(f"argument {name!r} must be int32, but is {pivots.dtype}")
    if pivots.size and not 1 <= pivots.min() <= pivots.max() <= packed.shape[-2]:
        raise InvalidArgument(f"argument {name!r} must hold numbers from 1 to {packed.shape[-2]}")
    return pivots.astype(np.int64) - 1


# ---- systems ----------------------------------------------------------------------------------------


@kernel("aten::linalg_lu_solve.out")
def lu_solve(context: Context, LU_: Array, pivots: Array, B: Array, left: bool, adjoint: bool, out: Array) -> BoundCall:
    """X in A X = B, or in X A = B, with Aᴴ for A if `adjoint`."""
    shape = solution_shape(LU_, "LU", B, "B", left)
    check_index(pivots, "pivots")
    check_shape(pivots, LU_.shape[:-1], "pivots")
    check_results(LU_, out)
    out = context.resize(out, shape)

    def function(packed: Array, swaps: Array, b: Array) -> Sequence[Array]:
        factors = LU(packed, _from_zero(swaps, packed, "pivots"))
        return (factors.solve(b, adjoint) if left else factors.solve_right(b, adjoint),)

    return results_call(function, (LU_, pivots, B), (out,))


@kernel("aten::_linalg_solve_ex.result")
def solve_ex(
    context: Context,
    A: Array,
    B: Array,
    left: bool,
    check_errors: bool,
    result: Array,
    LU: Array,
    pivots: Array,
    info: Array,
) -> BoundCall:
    """X in A X = B, or in X A = B, and the factors of A. B may hold one vector for each matrix."""
    check_matrix(A, "A", square=True)
    vector = is_vector(A, B)
    if vector and not left:
        raise InvalidArgument(f"argument 'B' of shape {B.shape} holds vectors, for which 'left' must be True")
    right = B[..., None] if vector else B
    shape = solution_shape(A, "A", right, "B", left)
    check_results(A, result, LU)
    outs = (
        context.resize(result, shape[:-1] if vector else shape),
        context.resize(LU, A.shape),
        context.resize(pivots, A.shape[:-1]),
        context.resize(info, A.shape[:-2]),
    )

    def function(a: Array, b: Array) -> Sequence[Array]:
        factors, failed = factor(a)
        check_info(failed, _SINGULAR, check_errors)
        x = factors.solve(b) if left else factors.solve_right(b)
        return x[..., 0] if vector else x, factors.packed, factors.pivots + 1, failed

    return results_call(function, (A, right), outs)


@kernel("aten::linalg_inv_ex.inverse")
def inv_ex(context: Context, A: Array, check_errors: bool, inverse: Array, info: Array) -> BoundCall:
    check_matrix(A, "A", square=True)
    check_results(A, inverse)
    outs = context.resize(inverse, A.shape), context.resize(info, A.shape[:-2])
    eye = np.eye(A.shape[-1], dtype=A.dtype)

    def function(a: Array) -> Sequence[Array]:
        factors, failed = factor(a)
        check_info(failed, _SINGULAR, check_errors)
        return factors.solve(eye), failed

    return results_call(function, (A,), outs)


# ---- determinants -----------------------------------------------------------------------------------


@kernel("aten::_linalg_det.result")
def det(context: Context, A: Array, result: Array, LU: Array, pivots: Array) -> BoundCall:
    """The determinant, and the factors of A. (Those that torch gives may be of Aᵀ.)"""
    check_matrix(A, "A", square=True)
    check_results(A, result, LU)
    outs = context.resize(result, A.shape[:-2]), *_packed_outs(context, A, LU, pivots)

    def function(a: Array) -> Sequence[Array]:
        factors, _ = factor(a)
        return np.prod(diagonal(factors.packed), -1) * factors.sign, factors.packed, factors.pivots + 1

    return results_call(function, (A,), outs)


@kernel("aten::_linalg_slogdet.sign")
def slogdet(context: Context, A: Array, sign: Array, logabsdet: Array, LU: Array, pivots: Array) -> BoundCall:
    """The determinant's sign, or complex unit, and the logarithm of its magnitude: 0 and -inf where it is zero."""
    check_matrix(A, "A", square=True)
    check_results(A, sign, LU)
    batch = A.shape[:-2]
    outs = context.resize(sign, batch), context.resize(logabsdet, batch), *_packed_outs(context, A, LU, pivots)
    return results_call(partial(_slogdet, np.dtype(real_type(A.dtype))), (A,), outs)


def _slogdet(real: np.dtype[np.generic], a: Array) -> Sequence[Array]:
    factors, _ = factor(a)
    d = diagonal(factors.packed)
    magnitudes = np.abs(d).astype(real)
    units = np.where(magnitudes == 0, 0, d / np.where(magnitudes == 0, 1, magnitudes))
    return np.prod(units, -1) * factors.sign, np.log(magnitudes).sum(-1), factors.packed, factors.pivots + 1


def _packed_outs(context: Context, a: Array, LU: Array, pivots: Array) -> tuple[Array, Array]:
    return context.resize(LU, a.shape), context.resize(pivots, a.shape[:-1])
