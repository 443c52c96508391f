"""Eigenvalues and singular values, and the pseudo-inverse made of them; LAPACK does the work, through NumPy.

Vectors are determined up to a sign, or a complex unit, which LAPACK chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal, ParamSpec, TypeVar

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import check_one_of, check_result, is_complex
from delegraph.runtime.numpy_kernels.shapes import check_broadcasts

from .library import kernel
from .matrices import adjoint, check_matrix, check_results, results_call

_P = ParamSpec("_P")
_T = TypeVar("_T")

_EMPTY = np.zeros(0)


def _converging(name: str, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """`function`; raises `InvalidArgument` where it does not converge: for NaN and infinities."""
    try:
        return function(*args, **kwargs)
    except np.linalg.LinAlgError as error:
        raise InvalidArgument(f"argument {name!r} holds a matrix of which LAPACK says: {error}") from error


# ---- eigenvalues ------------------------------------------------------------------------------------


@kernel("aten::_linalg_eigh.eigenvalues")
def eigh(context: Context, A: Array, UPLO: str, compute_v: bool, eigenvalues: Array, eigenvectors: Array) -> BoundCall:
    """Of Hermitian matrices, of which one triangle is read: real and ascending eigenvalues."""
    check_matrix(A, "A", square=True)
    check_one_of(UPLO, "UPLO", tuple(_TRIANGLES))
    triangle = _TRIANGLES[UPLO]
    check_results(A, eigenvectors)
    outs = context.resize(eigenvalues, A.shape[:-1]), context.resize(eigenvectors, A.shape if compute_v else (0,))

    def function(a: Array) -> Sequence[Array]:
        if compute_v:
            return _converging("A", _eigh, a, triangle)
        return _converging("A", _eigvalsh, a, triangle), _EMPTY

    return results_call(function, (A,), outs)


_Triangle = Literal["L", "U"]
_TRIANGLES: Final[dict[str, _Triangle]] = {"L": "L", "U": "U", "l": "L", "u": "U"}


def _eigh(a: Array, triangle: _Triangle) -> tuple[Array, Array]:
    values, vectors = np.linalg.eigh(a, triangle)
    return values, vectors


def _eigvalsh(a: Array, triangle: _Triangle) -> Array:
    return np.linalg.eigvalsh(a, triangle)


@kernel("aten::linalg_eig.out")
def eig(context: Context, self: Array, eigenvalues: Array, eigenvectors: Array) -> BoundCall:
    """Of any square matrices: complex."""
    check_matrix(self, "self", square=True)
    for out, name in ((eigenvalues, "eigenvalues"), (eigenvectors, "eigenvectors")):
        check_result(np.result_type(self.dtype, np.complex64), out, name)
    outs = context.resize(eigenvalues, self.shape[:-1]), context.resize(eigenvectors, self.shape)
    return results_call(lambda a: tuple(_converging("self", np.linalg.eig, a)), (self,), outs)


# ---- singular values --------------------------------------------------------------------------------


@kernel("aten::_linalg_svd.U")
def svd(
    context: Context,
    A: Array,
    full_matrices: bool,
    compute_uv: bool,
    driver: str | None,
    U: Array,
    S: Array,
    Vh: Array,
) -> BoundCall:
    """A = U S Vᴴ with descending S; `driver` chooses among a GPU's algorithms."""
    check_matrix(A, "A")
    check_results(A, U, Vh)
    *batch, m, n = A.shape
    k = min(m, n)
    outs = (
        context.resize(U, (*batch, m, m if full_matrices else k) if compute_uv else (0,)),
        context.resize(S, (*batch, k)),
        context.resize(Vh, (*batch, n if full_matrices else k, n) if compute_uv else (0,)),
    )

    def function(a: Array) -> Sequence[Array]:
        if compute_uv:
            return _converging("A", _svd, a, full_matrices)
        return _EMPTY, _converging("A", _singular_values, a), _EMPTY

    return results_call(function, (A,), outs)


def _svd(a: Array, full_matrices: bool) -> tuple[Array, Array, Array]:
    u, s, vh = np.linalg.svd(a, full_matrices)
    return u, s, vh


def _singular_values(a: Array) -> Array:
    return np.linalg.svd(a, compute_uv=False)


# ---- pseudo-inverse ---------------------------------------------------------------------------------


@kernel("aten::linalg_pinv.atol_rtol_tensor_out")
def pinv(
    context: Context, self: Array, atol: Array | None, rtol: Array | None, hermitian: bool, out: Array
) -> BoundCall:
    """V S⁺ Uᴴ, where S⁺ inverts the singular values above max(atol, rtol * the largest) and drops the others.

    By default `atol` is 0, and `rtol` the dtype's epsilon times the larger size, or 0 where `atol` is positive.
    """
    check_matrix(self, "self", square=hermitian)
    check_results(self, out)
    *batch, m, n = self.shape
    for tolerance, name in ((atol, "atol"), (rtol, "rtol")):
        if tolerance is not None:
            if is_complex(tolerance.dtype):
                raise InvalidArgument(f"argument {name!r} must be real, but is {tolerance.dtype}")
            check_broadcasts(tolerance, tuple(batch), name)
    out = context.resize(out, (*batch, n, m))
    if self.size == 0:
        return partial(out.fill, 0)

    def call() -> None:
        u, s, vh = _spectrum(self) if hermitian else _converging("self", _svd, self, False)
        magnitudes = np.abs(s)
        limit = _limit(magnitudes.max(-1), atol, rtol, max(m, n))[..., None]
        inverses = np.where(magnitudes > limit, 1 / s, 0).astype(s.dtype)
        np.copyto(out, adjoint(vh) @ (inverses[..., None] * adjoint(u)), casting="unsafe")

    return call


def _spectrum(a: Array) -> tuple[Array, Array, Array]:
    """As a singular value decomposition, but of eigenvalues, which have signs."""
    values, vectors = _converging("self", _eigh, a, "L")
    return vectors, values, adjoint(vectors)


def _limit(largest: Array, atol: Array | None, rtol: Array | None, size: int) -> Array:
    absolute = np.zeros_like(largest) if atol is None else atol
    relative = np.where(absolute > 0, 0, np.finfo(largest.dtype).eps * size) if rtol is None else rtol
    limit: Array = np.maximum(absolute, relative * largest)
    return limit
