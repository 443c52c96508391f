"""Distances between rows in the p-norm."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.runtime.kernels import BoundCall

from .evaluate import function_call
from .library import Array, Context, kernel
from .promotion import check_floating, check_result, check_same_dtype, compute_type
from .shapes import broadcast, check_rank


@kernel("aten::_cdist_forward.out")
def cdist(context: Context, x1: Array, x2: Array, p: float, compute_mode: int | None, out: Array) -> BoundCall:
    """x1 (*, P, M) and x2 (*, R, M) -> (*, P, R). `compute_mode` would choose between ways to the same result."""
    _check(x1, "x1", p)
    check_same_dtype(x2, "x2", x1, "x1")
    check_result(x1.dtype, out)
    if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise InvalidArgument(f"arguments 'x1' {x1.shape} and 'x2' {x2.shape} do not have rows of one length")
    batch = broadcast(x1.shape[:-2], x2.shape[:-2])
    out = context.resize(out, (*batch, x1.shape[-2], x2.shape[-2]))
    return function_call(context, partial(_distances, p), (x1, x2), out, compute_type(x1.dtype))


@kernel("aten::_pdist_forward.out")
def pdist(context: Context, self: Array, p: float, out: Array) -> BoundCall:
    """Rows of self (N, M), each with each later one -> (N (N-1) / 2)."""
    _check(self, "self", p)
    check_rank(self, (2,), "self")
    check_result(self.dtype, out)
    n = self.shape[0]
    out = context.resize(out, (n * (n - 1) // 2,))
    pairs = np.triu_indices(n, 1)

    def function(x: Array, result: Array) -> None:
        square = np.empty((n, n), x.dtype)
        _distances(p, x, x, square)
        np.copyto(result, square[pairs])

    return function_call(context, function, (self,), out, compute_type(self.dtype))


def _check(x: Array, name: str, p: float) -> None:
    check_floating(x, name)
    if not p >= 0:
        raise InvalidArgument(f"argument 'p' must not be negative, but is {p}")


def _distances(p: float, x1: Array, x2: Array, out: Array) -> None:
    """Row by row of `x1`: all differences at once could fill the memory."""
    for i in range(x1.shape[-2]):
        out[..., i, :] = _norm(np.abs(x1[..., i : i + 1, :] - x2), p)


def _norm(differences: Array, p: float) -> Array:
    """The p-norm of absolute differences along the last axis; p = 0 counts those that are not zero."""
    if p == 0:
        return np.count_nonzero(differences, -1)  # type: ignore[no-any-return]
    if p == math.inf:
        return np.max(differences, -1, initial=0)  # type: ignore[no-any-return]
    if p == 1:
        return differences.sum(-1)  # type: ignore[no-any-return]
    if p == 2:
        return np.sqrt(np.square(differences).sum(-1))  # type: ignore[no-any-return]
    return (differences**p).sum(-1) ** (1 / p)  # type: ignore[no-any-return]
