"""exp(A) of square matrices by scaling, a Padé approximant, and squaring.

N. Higham, "The scaling and squaring method for the matrix exponential revisited", SIAM J. Matrix Anal. Appl. 26 (2005):
Table 2.3 bounds the norm up to which the approximant of a degree is as accurate as the dtype.
"""

from __future__ import annotations

from math import factorial
from typing import Final

import numpy as np

from delegraph.runtime.kernels import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import FLOAT64, DType, is_floating, real_type

from .library import kernel
from .matrices import check_matrix, check_results, results_call

_DEGREES: Final = {np.dtype(np.float32): (7, 3.925724783138660), np.dtype(np.float64): (13, 5.371920351148152)}
"""The degree, and the largest 1-norm for it."""


@kernel("aten::linalg_matrix_exp.out")
def matrix_exp(context: Context, self: Array, out: Array) -> BoundCall:
    """Halves are computed in float64: where elements cancel, squaring loses more of float32 than a half can spare."""
    compute = FLOAT64 if is_floating(self.dtype) and self.dtype.itemsize == 2 else self.dtype
    check_matrix(self, "self", square=True, halves=True)
    check_results(self, out)
    out = context.resize(out, self.shape)
    return results_call(lambda a: (_exponential(a.astype(compute, copy=False), real_type(compute)),), (self,), (out,))


def _exponential(a: Array, real: DType) -> Array:
    if a.size == 0:
        return a
    degree, bound = _DEGREES[real]
    norms = np.abs(a).sum(-2).max(-1)
    halvings = np.where(np.isfinite(norms), np.ceil(np.log2(np.maximum(norms / bound, 1))), 0)[..., None, None]
    result = _approximant(a * np.exp2(-halvings).astype(real), degree)
    for i in range(int(halvings.max())):
        result = np.where(i < halvings, result @ result, result)
    return result


def _approximant(a: Array, degree: int) -> Array:
    """p(A) / p(-A): of p, the even powers are common to both, and the odd ones change sign."""
    square = a @ a
    coefficients = [
        factorial(2 * degree - i) * factorial(degree) / (factorial(2 * degree) * factorial(i) * factorial(degree - i))
        for i in range(degree + 1)
    ]
    eye = np.eye(a.shape[-1], dtype=a.dtype)
    sums = []
    for powers in (coefficients[0::2], coefficients[1::2]):
        total = np.broadcast_to(powers[-1] * eye, a.shape).astype(a.dtype)
        for coefficient in reversed(powers[:-1]):
            total = total @ square + (coefficient * eye).astype(a.dtype)
        sums.append(total)
    symmetric, antisymmetric = sums[0], a @ sums[1]
    return np.linalg.solve(symmetric - antisymmetric, symmetric + antisymmetric)
