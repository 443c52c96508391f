"""A matrix and its factors -> an `AssertionError` unless their product is the matrix and their forms are right.

Which factors those are is LAPACK's choice: signs and phases of vectors, the order of eigenvalues, pivots among entries
of nearly one size. Two builds of LAPACK choose differently, so the factors themselves are never compared.
"""

from __future__ import annotations

import torch

__all__ = [
    "assert_eigenvalues",
    "assert_exponential",
    "assert_hermitian_eigenvalues",
    "assert_ldl",
    "assert_lu",
    "assert_near",
    "assert_qr",
    "assert_reflections",
    "assert_singular_values",
    "assert_unitary",
]


def assert_near(actual: torch.Tensor, expected: torch.Tensor, matrix: torch.Tensor, growth: float = 1.0) -> None:
    """Equal up to the backward error of a factorisation of `matrix`: 10 n eps |A|, times `growth`."""
    n = max(1, *matrix.shape[-2:])
    size = max(1.0, float(torch.linalg.vector_norm(matrix)) if matrix.numel() else 0.0)
    atol = 10 * n * torch.finfo(matrix.dtype).eps * size * growth
    torch.testing.assert_close(actual, expected, rtol=0, atol=atol)


def assert_unitary(columns: torch.Tensor) -> None:
    product = columns.mH @ columns
    assert_near(product, torch.eye(product.shape[-1], dtype=product.dtype).expand_as(product), product)


def assert_qr(matrix: torch.Tensor, q: torch.Tensor, r: torch.Tensor) -> None:
    """A = Q R; without Q, which is then a vector of no elements, Rᴴ R = Aᴴ A."""
    assert torch.equal(r, r.triu())
    if q.dim() == 1:
        gram = matrix.mH @ matrix
        return assert_near(r.mH @ r, gram, gram)
    assert_unitary(q)
    return assert_near(q @ r, matrix, matrix)


def assert_reflections(matrix: torch.Tensor, a: torch.Tensor, tau: torch.Tensor) -> None:
    """geqrf: R, below it the vectors of the reflections that make up Q, and their factors."""
    m, n = matrix.shape[-2:]
    k = min(m, n)
    assert_qr(matrix, torch.linalg.householder_product(a[..., :k], tau), a[..., :k, :].triu())


def assert_lu(matrix: torch.Tensor, lu: torch.Tensor, pivots: torch.Tensor) -> None:
    """A = P L U, where pivots keep the entries of L at 1 or below; of complex ones LAPACK compares |re| + |im|."""
    p, lower, upper = torch.lu_unpack(lu, pivots)
    largest = (2**0.5 if matrix.is_complex() else 1) * (1 + 10 * torch.finfo(matrix.dtype).eps)
    assert (lower.abs() <= largest).all()
    assert_near(p @ lower @ upper, matrix, matrix)


def assert_ldl(matrix: torch.Tensor, ld: torch.Tensor, pivots: torch.Tensor, hermitian: bool) -> None:
    """A = L D Lᵀ, or L D Lᴴ: it solves systems with A."""
    right = torch.ones(*matrix.shape[:-1], 1, dtype=matrix.dtype)
    x = torch.linalg.ldl_solve(ld, pivots, right, hermitian=hermitian)
    low = matrix.tril(-1)
    full = matrix.tril() + (low.mH if hermitian else low.mT)
    assert_near(full @ x, right, matrix, growth=max(1.0, float(x.abs().max()) if x.numel() else 0.0))


def assert_singular_values(matrix: torch.Tensor, u: torch.Tensor, s: torch.Tensor, vh: torch.Tensor) -> None:
    """A = U S Vᴴ, reduced or full, with descending S."""
    k = s.shape[-1]
    assert (s.diff(dim=-1) <= 0).all()
    assert_near(u[..., :k] * s[..., None, :] @ vh[..., :k, :], matrix, matrix)
    assert_unitary(u)
    assert_unitary(vh.mH)


def assert_hermitian_eigenvalues(matrix: torch.Tensor, values: torch.Tensor, vectors: torch.Tensor) -> None:
    """A = V Λ Vᴴ with ascending Λ."""
    assert (values.diff(dim=-1) >= 0).all()
    assert_unitary(vectors)
    assert_near(vectors * values[..., None, :] @ vectors.mH, matrix, matrix)


def assert_eigenvalues(matrix: torch.Tensor, values: torch.Tensor, vectors: torch.Tensor) -> None:
    """A V = V Λ with vectors of length 1; all eigenvalues are there, since they add up to the trace."""
    matrix = matrix.to(values.dtype)
    assert_near(matrix @ vectors, vectors * values[..., None, :], matrix)
    assert_near(vectors.norm(dim=-2), torch.ones(values.shape, dtype=values.real.dtype), matrix)
    assert_near(values.sum(-1), matrix.diagonal(dim1=-2, dim2=-1).sum(-1), matrix)


_EXPONENTIAL_LIMITS = {torch.float32: 1e-5, torch.complex64: 1e-5, torch.float64: 1e-11, torch.complex128: 1e-11}


def assert_exponential(matrix: torch.Tensor, actual: torch.Tensor) -> None:
    """exp(A) as torch has it in double precision, up to the rounding of the largest element: squaring adds it up."""
    expected = torch.linalg.matrix_exp(matrix.to(torch.complex128 if matrix.is_complex() else torch.float64))
    limit = _EXPONENTIAL_LIMITS.get(matrix.dtype) or torch.finfo(matrix.dtype).eps
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    held = expected.to(matrix.dtype).to(expected.dtype)  # infinite where float16 ends
    torch.testing.assert_close(actual.to(expected.dtype), held, rtol=0, atol=limit * largest)
