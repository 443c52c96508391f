"""A = P L U, and its uses: solutions of systems, inverses, determinants (LAPACK's getrf, getrs)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.lazy_dataclass import dataclass
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import DType, check_index, check_kind, real_type
from delegraph.runtime.numpy_kernels.shapes import check_shape

from .library import kernel, lapack
from .matrices import (
    adjoint,
    check_info,
    check_matrix,
    check_results,
    check_shape_of_matrix,
    diagonal,
    is_vector,
    places,
    results_call,
    solution_shape,
    solve_each,
)

_SINGULAR = "a matrix is singular"
_EMPTY = np.zeros(0)


# ---- factors ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LU:
    """`packed` (*, m, n): U, and below its diagonal L, whose own diagonal is ones. k = min(m, n).

    `pivots` (*, k): the row, counted from 0, that was swapped with row i before column i was eliminated.
    """

    packed: Array
    pivots: Array

    @property
    def permutation(self) -> Array:
        """P (*, m, m) of zeros and ones."""
        m = self.packed.shape[-2]
        ones: Array = np.arange(m)[:, None] == self._rows[..., None, :]
        return ones

    @property
    def _rows(self) -> Array:
        """(*, m): for each row of L U, the number of the row of A that it equals."""
        *batch, k = self.pivots.shape
        rows = np.broadcast_to(np.arange(self.packed.shape[-2]), (*batch, self.packed.shape[-2])).copy()
        for i in range(k):  # in the order of elimination: a row may be swapped more than once
            pivot = self.pivots[..., i, None]
            swapped = np.take_along_axis(rows, pivot, -1)
            np.put_along_axis(rows, pivot, rows[..., i, None].copy(), -1)
            rows[..., i] = swapped[..., 0]
        return rows

    @property
    def lower(self) -> Array:
        """L (*, m, k)."""
        m, n = self.packed.shape[-2:]
        low = np.tril(self.packed[..., : min(m, n)], -1)
        diagonal(low)[...] = 1
        return low

    @property
    def upper(self) -> Array:
        """U (*, k, n)."""
        m, n = self.packed.shape[-2:]
        return np.triu(self.packed[..., : min(m, n), :])

    @property
    def sign(self) -> Array:
        """(*): the determinant of P."""
        # Each swap of two rows changes the sign; a pivot that is its own row is none.
        swaps = np.count_nonzero(self.pivots != np.arange(self.pivots.shape[-1]), -1)
        return np.where(swaps % 2, -1, 1)


Factorization = Callable[[Array], tuple[LU, Array]]
"""A (*, m, n) -> its factors, and `info` (*): 0, or the first i, from 1, for which U[i, i] is zero."""


def _factorization(dtype: DType, pivot: bool = True) -> Factorization:
    getrf = lapack("getrf", dtype) if pivot else _eliminate

    def factor(a: Array) -> tuple[LU, Array]:
        *batch, m, n = a.shape
        packed, info = np.empty_like(a), np.zeros(batch, np.int32)
        pivots = np.zeros((*batch, min(m, n)), np.int64)
        for at in places(a):
            packed[at], pivots[at], info[at] = getrf(a[at])
        return LU(packed, pivots), info

    return factor


def _eliminate(a: Array) -> tuple[Array, Array, int]:
    """getrf without pivots, which LAPACK does not have; torch has it on a GPU."""
    packed, k, info = np.array(a), min(a.shape), 0
    for i in range(k):
        divisor = packed[i, i]
        if divisor == 0:  # the column below is left as it is, as getrf leaves it, which reports the first one
            info = info or i + 1
            continue
        packed[i + 1 :, i] /= divisor
        packed[i + 1 :, i + 1 :] -= np.outer(packed[i + 1 :, i], packed[i, i + 1 :])
    return packed, np.arange(k), info


Solver = Callable[[LU, Array], Array]


def _solver(dtype: DType, left: bool = True, conjugate_transposed: bool = False) -> Solver:
    """(factors of A, B) -> X in A X = B, or in X A = B, with Aᴴ for A if `conjugate_transposed`."""
    getrs = lapack("getrs", dtype)
    # X A = B is Aᴴ Xᴴ = Bᴴ: getrs then solves with the adjoint of the factors, and with A itself if both ask for Aᴴ.
    trans = 2 if conjugate_transposed == left else 0

    def solve_one(b: Array, packed: Array, pivots: Array) -> Array:
        x: Array = getrs(packed, pivots, b, trans=trans)[0]
        return x

    def solve(factors: LU, b: Array) -> Array:
        if left:
            return solve_each(solve_one, b, factors.packed, factors.pivots)
        return adjoint(solve_each(solve_one, adjoint(b), factors.packed, factors.pivots))

    return solve


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

    factor = _factorization(A.dtype, pivot)

    def function(a: Array) -> Sequence[Array]:
        factors, failed = factor(a)
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
    factor = _factorization(A.dtype, pivot)
    return results_call(lambda a: _unpack(factor(a)[0], pivot, True), (A,), outs)


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

    solve = _solver(LU_.dtype, left, adjoint)

    def function(packed: Array, swaps: Array, b: Array) -> Sequence[Array]:
        return (solve(LU(packed, _from_zero(swaps, packed, "pivots")), b),)

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

    factor, solve = _factorization(A.dtype), _solver(A.dtype, left)

    def function(a: Array, b: Array) -> Sequence[Array]:
        factors, failed = factor(a)
        check_info(failed, _SINGULAR, check_errors)
        x = solve(factors, b)
        return x[..., 0] if vector else x, factors.packed, factors.pivots + 1, failed

    return results_call(function, (A, right), outs)


@kernel("aten::linalg_inv_ex.inverse")
def inv_ex(context: Context, A: Array, check_errors: bool, inverse: Array, info: Array) -> BoundCall:
    check_matrix(A, "A", square=True)
    check_results(A, inverse)
    outs = context.resize(inverse, A.shape), context.resize(info, A.shape[:-2])
    eye, factor, solve = np.eye(A.shape[-1], dtype=A.dtype), _factorization(A.dtype), _solver(A.dtype)

    def function(a: Array) -> Sequence[Array]:
        factors, failed = factor(a)
        check_info(failed, _SINGULAR, check_errors)
        return solve(factors, eye), failed

    return results_call(function, (A,), outs)


# ---- determinants -----------------------------------------------------------------------------------


@kernel("aten::_linalg_det.result")
def det(context: Context, A: Array, result: Array, LU: Array, pivots: Array) -> BoundCall:
    """The determinant, and the factors of A. (Those that torch gives may be of Aᵀ.)"""
    check_matrix(A, "A", square=True)
    check_results(A, result, LU)
    outs = context.resize(result, A.shape[:-2]), *_packed_outs(context, A, LU, pivots)
    factor = _factorization(A.dtype)

    def function(a: Array) -> Sequence[Array]:
        factors, _ = factor(a)
        # det A = det P det L det U, and L has ones on its diagonal.
        return np.prod(diagonal(factors.packed), -1) * factors.sign, factors.packed, factors.pivots + 1

    return results_call(function, (A,), outs)


@kernel("aten::_linalg_slogdet.sign")
def slogdet(context: Context, A: Array, sign: Array, logabsdet: Array, LU: Array, pivots: Array) -> BoundCall:
    """The determinant's sign, or complex unit, and the logarithm of its magnitude: 0 and -inf where it is zero."""
    check_matrix(A, "A", square=True)
    check_results(A, sign, LU)
    batch = A.shape[:-2]
    outs = context.resize(sign, batch), context.resize(logabsdet, batch), *_packed_outs(context, A, LU, pivots)
    factor, real = _factorization(A.dtype), real_type(A.dtype)

    def function(a: Array) -> Sequence[Array]:
        factors, _ = factor(a)
        d = diagonal(factors.packed)
        magnitudes = np.abs(d).astype(real)
        # d / |d| for each factor: signs, or complex units, multiply, and logarithms add up without an overflow.
        units = np.where(magnitudes == 0, 0, d / np.where(magnitudes == 0, 1, magnitudes))
        return np.prod(units, -1) * factors.sign, np.log(magnitudes).sum(-1), factors.packed, factors.pivots + 1

    return results_call(function, (A,), outs)


def _packed_outs(context: Context, a: Array, LU: Array, pivots: Array) -> tuple[Array, Array]:
    return context.resize(LU, a.shape), context.resize(pivots, a.shape[:-1])
