"""A = Q R, with Q as a product of Householder reflections H = I - τ v vᴴ (LAPACK's geqrf, orgqr, ormqr).

v is 0 above the diagonal, 1 on it, and the stored numbers below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_one_of, check_same_dtype, is_complex
from delegraph.runtime.numpy_kernels.shapes import check_shape

from .library import kernel, lapack
from .matrices import check_matrix, check_results, places, results_call, transpose

_EMPTY = np.zeros(0)
_BLOCK: Final = 32
"""Reflections that LAPACK applies at once, for which it wants memory (ilaenv's choice for orgqr and ormqr)."""


@kernel("aten::linalg_qr.out")
def qr(context: Context, A: Array, mode: str, Q: Array, R: Array) -> BoundCall:
    """`mode`: "reduced", "complete" (Q is square), or "r" (Q has no elements)."""
    check_matrix(A, "A")
    check_one_of(mode, "mode", ("reduced", "complete", "r"))
    check_results(A, Q, R)
    *batch, m, n = A.shape
    inner = m if mode == "complete" else min(m, n)
    outs = context.resize(Q, (0,) if mode == "r" else (*batch, m, inner)), context.resize(R, (*batch, inner, n))

    def function(a: Array) -> Sequence[Array]:
        if mode == "r":
            _, r = np.linalg.qr(a)
            return _EMPTY, r
        return tuple(np.linalg.qr(a, mode="complete" if mode == "complete" else "reduced"))

    return results_call(function, (A,), outs)


@kernel("aten::geqrf.a")
def geqrf(context: Context, self: Array, a: Array, tau: Array) -> BoundCall:
    """R, below it the vectors v, and their τ."""
    check_matrix(self, "self")
    check_results(self, a, tau)
    outs = context.resize(a, self.shape), context.resize(tau, (*self.shape[:-2], min(self.shape[-2:])))

    def function(matrix: Array) -> Sequence[Array]:
        reflections, factors = np.linalg.qr(matrix, "raw")
        return transpose(reflections), factors

    return results_call(function, (self,), outs)


def _check_reflections(vectors: Array, name: str, tau: Array, tau_name: str) -> None:
    check_matrix(vectors, name)
    check_same_dtype(tau, tau_name, vectors, name)
    check_shape(tau, (*vectors.shape[:-2], tau.shape[-1] if tau.ndim else 0), tau_name)
    if tau.shape[-1] > vectors.shape[-1]:
        raise InvalidArgument(f"argument {tau_name!r} has {tau.shape[-1]} factors for {vectors.shape[-1]} vectors")


@kernel("aten::linalg_householder_product.out")
def householder_product(context: Context, input: Array, tau: Array, out: Array) -> BoundCall:
    """The first n columns of Q (*, m, n)."""
    _check_reflections(input, "input", tau, "tau")
    if input.shape[-1] > input.shape[-2]:
        raise InvalidArgument(f"argument 'input' of shape {input.shape} must not have more columns than rows")
    check_results(input, out)
    out = context.resize(out, input.shape)

    orgqr = lapack("ungqr" if is_complex(input.dtype) else "orgqr", input.dtype)
    lwork = _BLOCK * max(1, input.shape[-1])

    def function(vectors: Array, factors: Array) -> tuple[Array]:
        q = np.empty_like(vectors)
        if factors.size == 0:
            q[...] = np.eye(*vectors.shape[-2:])
            return (q,)
        for at in places(q):
            q[at] = orgqr(vectors[at], factors[at], lwork=lwork)[0]
        return (q,)

    return results_call(function, (input, tau), (out,))


@kernel("aten::ormqr.out")
def ormqr(
    context: Context, self: Array, input2: Array, input3: Array, left: bool, transpose: bool, out: Array
) -> BoundCall:
    """Q C or C Q, with Qᴴ for Q if `transpose`: Q of the vectors `self` and τ `input2`, C is `input3`."""
    _check_reflections(self, "self", input2, "input2")
    check_matrix(input3, "input3")
    check_same_dtype(input3, "input3", self, "self")
    size = input3.shape[-2 if left else -1]
    if size != self.shape[-2] or input3.shape[:-2] != self.shape[:-2] or input2.shape[-1] > size:
        raise InvalidArgument(f"arguments 'self' {self.shape} and 'input3' {input3.shape} do not fit together")
    check_results(self, out)
    out = context.resize(out, input3.shape)

    complex_ = is_complex(self.dtype)
    routine = lapack("unmqr" if complex_ else "ormqr", self.dtype)
    side, trans = "L" if left else "R", ("C" if complex_ else "T") if transpose else "N"
    lwork = _BLOCK * max(1, *input3.shape[-2:])

    def function(vectors: Array, factors: Array, c: Array) -> tuple[Array]:
        product = np.array(c)
        count = factors.shape[-1]
        for at in places(c) if count else ():
            product[at] = routine(side, trans, vectors[at][:, :count], factors[at], c[at], lwork)[0]
        return (product,)

    return results_call(function, (self, input2, input3), (out,))
