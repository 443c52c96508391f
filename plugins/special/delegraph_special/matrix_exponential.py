"""exp(A) of square matrices, by scaling, a Padé approximant, and squaring (`scipy.linalg.expm`)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import FLOAT64, is_floating

from .library import kernel
from .matrices import check_matrix, check_results, results_call


@kernel("aten::linalg_matrix_exp.out")
def matrix_exp(context: Context, self: Array, out: Array) -> BoundCall:
    """Halves are computed in float64: where elements cancel, squaring loses more of float32 than a half can spare."""
    from scipy.linalg import expm

    compute = FLOAT64 if is_floating(self.dtype) and self.dtype.itemsize == 2 else self.dtype
    check_matrix(self, "self", square=True, halves=True)
    check_results(self, out)
    out = context.resize(out, self.shape)
    return results_call(lambda a: (_exponential(expm, a.astype(compute, copy=False)),), (self,), (out,))


def _exponential(expm: Callable[[Array], Array], a: Array) -> Array:
    """NaN where a matrix has an element that is not finite."""
    finite = np.isfinite(a).all((-1, -2), keepdims=True)
    return np.where(finite, expm(np.where(finite, a, 0)), np.nan) if a.size else a
