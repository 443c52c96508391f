"""A = P L U by elimination with row pivots: what systems, inverses and determinants stand on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from delegraph.runtime.numpy_kernels.prepared import Array

from . import triangular
from .matrices import adjoint, diagonal, stacked_copy

_BLOCK: Final = 32
"""Columns that are eliminated one by one before one product updates all to their right."""


@dataclass(frozen=True, slots=True)
class LU:
    """`packed` (*, m, n): U, and below its diagonal L, whose own diagonal is ones. k = min(m, n).

    `pivots` (*, k): the row, counted from 0, that was swapped with row i before column i was eliminated.
    """

    packed: Array
    pivots: Array

    @property
    def rows(self) -> Array:
        """(*, m): the row of A that each row of L U is."""
        *batch, k = self.pivots.shape
        rows = np.broadcast_to(np.arange(self.packed.shape[-2]), (*batch, self.packed.shape[-2])).copy()
        for i in range(k):
            other = self.pivots[..., i, None]
            swapped = np.take_along_axis(rows, other, -1)
            np.put_along_axis(rows, other, rows[..., i, None].copy(), -1)
            rows[..., i] = swapped[..., 0]
        return rows

    @property
    def permutation(self) -> Array:
        """P (*, m, m) of zeros and ones."""
        m = self.packed.shape[-2]
        ones: Array = np.arange(m)[:, None] == self.rows[..., None, :]
        return ones

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
        swaps = np.count_nonzero(self.pivots != np.arange(self.pivots.shape[-1]), -1)
        return np.where(swaps % 2, -1, 1)

    def solve(self, b: Array, conjugate_transposed: bool = False) -> Array:
        """X in A X = b, or in Aᴴ X = b; batches broadcast."""
        rows = self.rows[..., None]
        if conjugate_transposed:
            y = triangular.solve(adjoint(self.packed), b, upper=False)
            x = triangular.solve(adjoint(self.packed), y, upper=True, unit=True)
            return _take_rows(x, np.argsort(rows, -2))
        y = triangular.solve(self.packed, _take_rows(b, rows), upper=False, unit=True)
        return triangular.solve(self.packed, y, upper=True)

    def solve_right(self, b: Array, conjugate_transposed: bool = False) -> Array:
        """X in X A = b, or in X Aᴴ = b."""
        return adjoint(self.solve(adjoint(b), not conjugate_transposed))


def _take_rows(b: Array, rows: Array) -> Array:
    """b (*, m, k) in the order of `rows` (*, m, 1); batches broadcast."""
    batch = np.broadcast_shapes(b.shape[:-2], rows.shape[:-2])
    source, order = (np.broadcast_to(array, (*batch, *array.shape[-2:])) for array in (b, rows))
    return np.take_along_axis(source, order, -2)


def factor(a: Array, pivot: bool = True) -> tuple[LU, Array]:
    """The factors of `a` (*, m, n), and `info` (*): 0, or the first i, from 1, for which U[i, i] is zero."""
    *batch, m, n = a.shape
    packed = stacked_copy(a)
    k = min(m, n)
    pivots = np.zeros((len(packed), k), np.int64)
    info = np.zeros(len(packed), np.int32)
    for start in range(0, k, _BLOCK):
        end = min(start + _BLOCK, k)
        for column in range(start, end):
            _eliminate(packed, column, end, pivot, pivots, info)
        right = packed[:, start:end, end:]
        triangular.solve_lower(packed[:, start:end, start:end], right, unit=True)
        packed[:, end:, end:] -= packed[:, end:, start:end] @ right
    return LU(packed.reshape(a.shape), pivots.reshape(*batch, k)), info.reshape(batch)


def _eliminate(a: Array, i: int, end: int, pivot: bool, pivots: Array, info: Array) -> None:
    """Swap the largest of column `i` into row `i` and eliminate below it, in the columns up to `end`."""
    matrices = np.arange(len(a))
    chosen = i + np.argmax(_magnitude(a[:, i:, i]), -1) if pivot else np.full(len(a), i)
    pivots[:, i] = chosen
    row = a[:, i].copy()
    a[:, i] = a[matrices, chosen]
    a[matrices, chosen] = row
    divisor = a[:, i, i]
    info[(divisor == 0) & (info == 0)] = i + 1
    a[:, i + 1 :, i] /= np.where(divisor == 0, 1, divisor)[:, None]
    a[:, i + 1 :, i + 1 : end] -= a[:, i + 1 :, i, None] * a[:, i, None, i + 1 : end]


def _magnitude(x: Array) -> Array:
    """What LAPACK compares: of complex numbers the sum of both parts' magnitudes."""
    return np.abs(x.real) + np.abs(x.imag) if x.dtype.kind == "c" else np.abs(x)
