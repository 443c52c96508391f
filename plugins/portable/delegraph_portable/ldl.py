"""A = L D Lᵀ (or L D Lᴴ) of symmetric (or Hermitian) matrices, which need not be positive, and systems with them.

J. Bunch and L. Kaufman, "Some stable methods for calculating inertia and solving symmetric linear systems", Math. Comp.
31 (1977): D has blocks of one or two rows. As in LAPACK's sytrf, pivots count from 1, those of a block of two are
negative and both the same, and rows of L that stand left of a later swap are not swapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.runtime.kernels import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_index
from delegraph.runtime.numpy_kernels.shapes import check_shape

from .library import kernel
from .matrices import check_info, check_matrix, check_results, results_call
from .triangular import solution_shape

_ALPHA = (1 + 17**0.5) / 8
"""How much smaller than others in its column an entry may be that is divided by: bounds the growth."""


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

    def function(a: Array) -> Sequence[Array]:
        low = np.tril(a)
        mirrored = np.tril(a, -1).swapaxes(-1, -2)
        full = low + (mirrored.conj() if hermitian else mirrored)
        n = a.shape[-1]
        swaps, failed = np.zeros(a.shape[:-1], np.int64), np.zeros(a.shape[:-2], np.int64)
        for at in np.ndindex(a.shape[:-2]):
            failed[at] = _factor(full[at], swaps[at], n)
        check_info(failed, "a matrix is singular", check_errors)
        return np.tril(full), swaps, failed

    return results_call(function, (self,), outs)


def _factor(a: Array, pivots: Array, n: int) -> int:
    """Overwrite the whole matrix; returns where a block of D is zero first, from 1, or 0."""
    failed = k = 0
    while k < n:
        chosen, size = _choose(a[k:, k:])
        last = k + size - 1
        if chosen:
            _swap(a[k:, k:], size - 1, chosen)
        pivots[k : last + 1] = (k + chosen + 1) * (1 if size == 1 else -1)
        block, below, right = a[k : last + 1, k : last + 1], a[last + 1 :, k : last + 1], a[k : last + 1, last + 1 :]
        if size == 1 and block[0, 0] == 0:
            failed = failed or k + 1
        else:
            factors = below @ _inverse(block)
            a[last + 1 :, last + 1 :] -= factors @ right
            below[...] = factors
        k += size
    return failed


def _choose(a: Array) -> tuple[int, int]:
    """The row that the first block's last row is swapped with, and the block's size."""
    magnitudes = np.abs(a.real) + np.abs(a.imag) if a.dtype.kind == "c" else np.abs(a)
    diagonal = magnitudes[0, 0]
    if len(a) == 1:
        return 0, 1
    other = 1 + int(np.argmax(magnitudes[1:, 0]))
    in_column = magnitudes[other, 0]
    if not diagonal < _ALPHA * in_column:
        return 0, 1
    in_row = np.delete(magnitudes[other], other).max()
    if diagonal >= _ALPHA * in_column * (in_column / in_row):
        return 0, 1
    return (other, 1) if magnitudes[other, other] >= _ALPHA * in_row else (other, 2)


def _swap(a: Array, i: int, j: int) -> None:
    a[[i, j]] = a[[j, i]]
    a[:, [i, j]] = a[:, [j, i]]


def _inverse(block: Array) -> Array:
    if len(block) == 1:
        return np.reciprocal(block)
    (a, b), (c, d) = block
    scale = c * (a / c * (d / b) - 1)  # the determinant divided by b, without overflow
    inverse: Array = np.array([[d / b, -1], [-c / b, a / b]], block.dtype) / block.dtype.type(scale)
    return inverse


# ---- systems ----------------------------------------------------------------------------------------


@kernel("aten::linalg_ldl_solve.out")
def ldl_solve(context: Context, LD: Array, pivots: Array, B: Array, hermitian: bool, out: Array) -> BoundCall:
    """X in A X = B."""
    shape = solution_shape(LD, "LD", B, "B")
    check_index(pivots, "pivots")
    check_shape(pivots, LD.shape[:-1], "pivots")
    check_results(LD, out)
    out = context.resize(out, shape)

    def function(factors: Array, swaps: Array, b: Array) -> tuple[Array]:
        n = factors.shape[-1]
        if swaps.size and not 1 <= np.abs(swaps).min() <= np.abs(swaps).max() <= n:
            raise InvalidArgument(f"argument 'pivots' must hold magnitudes from 1 to {n}")
        x = np.array(np.broadcast_to(b, shape))
        spread, spread_swaps = (np.broadcast_to(v, (*shape[:-2], *v.shape[LD.ndim - 2 :])) for v in (factors, swaps))
        for at in np.ndindex(shape[:-2]):
            _solve(spread[at], spread_swaps[at], x[at], hermitian)
        return (x,)

    return results_call(function, (LD, pivots, B), (out,))


def _solve(ld: Array, pivots: Array, x: Array, hermitian: bool) -> None:
    blocks = list(_blocks(pivots))
    for start, end in blocks:
        _swap_rows(x, end - 1, abs(int(pivots[start])) - 1)
        x[end:] -= ld[end:, start:end] @ x[start:end]
        block = ld[start:end, start:end].copy()
        if end - start == 2:
            block[0, 1] = block[1, 0].conj() if hermitian else block[1, 0]
        x[start:end] = _inverse(block) @ x[start:end]
    for start, end in reversed(blocks):
        below = ld[end:, start:end].T
        x[start:end] -= (below.conj() if hermitian else below) @ x[end:]
        _swap_rows(x, end - 1, abs(int(pivots[start])) - 1)


def _blocks(pivots: Array) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(pivots):
        end = start + (1 if pivots[start] > 0 else 2)
        yield start, end
        start = end


def _swap_rows(x: Array, i: int, j: int) -> None:
    if i != j:
        x[[i, j]] = x[[j, i]]
