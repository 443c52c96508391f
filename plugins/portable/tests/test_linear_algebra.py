"""Factorisations, and what is solved with them, against torch; by their product where signs are not determined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from plugins.portable.tests.oracle import TORCH_DTYPES, Oracle, map_tensors, to_numpy, to_torch

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.program.dtypes import numpy_dtype

torch.manual_seed(0)

F32, F64, C64, C128 = torch.float32, torch.float64, torch.complex64, torch.complex128
DTYPES = (F32, F64, C64, C128)
I32, I64 = torch.int32, torch.int64
aten = torch.ops.aten


def rand(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(shape, dtype=C128 if dtype.is_complex else F64).to(dtype)


def well(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    """Square matrices of a small condition."""
    return rand(*shape, dtype=dtype) + 3 * torch.eye(shape[-1], dtype=dtype) * shape[-1] ** 0.5


def positive(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    a = rand(*shape, dtype=dtype)
    return a @ a.mH / shape[-1] + torch.eye(shape[-1], dtype=dtype)


def hermitian(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    a = rand(*shape, dtype=dtype)
    return a + a.mH


def real(dtype: torch.dtype) -> torch.dtype:
    return {C64: F32, C128: F64}.get(dtype, dtype)


def lower(*shape: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.linalg.cholesky(positive(*shape, dtype=dtype))


SINGULAR = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
LIMITS = {F32: {"rtol": 1e-4, "atol": 1e-5}, C64: {"rtol": 1e-4, "atol": 1e-5}}
"""float32 against the rounding of another order of sums; what is in doubles has torch.testing's defaults."""

# fmt: off
# operator: (arguments…, keywords with "out": dtypes)
CASES: dict[str, list[tuple[Any, ...]]] = {
    "linalg_solve_triangular.out": [
        (well(2, n, n, dtype=d), rand(*(2, n, 3) if left else (2, 3, n), dtype=d),
         {"upper": upper, "left": left, "unitriangular": False})
        for d in DTYPES for n in (1, 5, 40) for upper in (False, True) for left in (False, True)
    ] + [
        (torch.eye(5) + rand(5, 5) / 9, rand(3, 5, 2), {"upper": upper, "unitriangular": True})
        for upper in (False, True)
    ] + [(well(2, 1, 3, 3), rand(4, 3, 2), {"upper": True}), (well(0, 3, 3), rand(0, 3, 2), {"upper": True}),
         (torch.zeros(0, 0), torch.zeros(0, 2), {"upper": True}), (torch.zeros(2, 2), rand(2, 2), {"upper": True})],
    "triangular_solve.X": [
        (rand(2, 4, 3, dtype=d), well(4, 4, dtype=d), upper, transpose, unit, {})
        for d in DTYPES for upper in (False, True) for transpose in (False, True) for unit in (False, True)
    ],
    "linalg_cholesky_ex.L": [
        (positive(*shape, dtype=d), {"upper": upper, "out": (d, I32)})
        for d in DTYPES for shape in ((1, 1), (2, 5, 5), (2, 0, 3, 3)) for upper in (False, True)
    ] + [(positive(50, 50), {"out": (F32, I32)}), (torch.zeros(2, 0, 0), {"out": (F32, I32)})],
    "cholesky.out": [(positive(2, 5, 5, dtype=d), upper, {}) for d in DTYPES for upper in (False, True)],
    "cholesky_inverse.out": [
        (x.mH if upper else x, upper, {}) for d in DTYPES for upper in (False, True) for x in (lower(2, 5, 5, dtype=d),)
    ],
    "cholesky_solve.out": [
        (rand(3, 5, 2, dtype=d), x.mH if upper else x, upper, {})
        for d in DTYPES for upper in (False, True) for x in (lower(5, 5, dtype=d),)
    ],
    "_cholesky_solve_helper.out": [(rand(2, 5, 2), lower(2, 5, 5), False, {})],
    "linalg_lu_factor_ex.out": [
        (rand(*shape, dtype=d), {"out": (d, I32, I32)})
        for d in DTYPES for shape in ((1, 1), (2, 5, 5), (2, 7, 4), (2, 4, 7), (0, 3, 3), (3, 0), (0, 3))
    ] + [(well(90, 90), {"out": (F32, I32, I32)}), (rand(40, 70), {"out": (F32, I32, I32)}),
         (torch.zeros(3, 3), {"out": (F32, I32, I32)})],
    "linalg_lu.out": [
        (rand(*shape, dtype=d), {}) for d in DTYPES for shape in ((2, 5, 5), (2, 7, 4), (2, 4, 7), (3, 0))
    ],
    "lu_unpack.out": [
        (*aten.linalg_lu_factor_ex(rand(*shape, dtype=d))[:2], data, pivots, {})
        for d in DTYPES for shape in ((2, 5, 5), (7, 4)) for data in (False, True) for pivots in (False, True)
    ] + [(torch.tensor([[2, 3], [1, 5]]).to(d), torch.tensor([2, 2], dtype=I32), {})
         for d in (torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16)],
    "linalg_lu_solve.out": [
        (*aten.linalg_lu_factor_ex(well(*n, 5, 5, dtype=d))[:2], rand(*(2, 5, 3) if left else (2, 3, 5), dtype=d),
         {"left": left, "adjoint": adjoint})
        for d in DTYPES for n in ((), (2,)) for left in (False, True) for adjoint in (False, True)
    ],
    "linalg_inv_ex.inverse": [
        (well(*shape, dtype=d), {"out": (d, I32)})
        for d in DTYPES for shape in ((1, 1), (2, 3, 5, 5), (0, 3, 3), (0, 0))
    ] + [(well(60, 60).T, {"out": (F32, I32)})],
    "linalg_qr.out": [
        (rand(*shape, dtype=d), mode, {}) for d in DTYPES for mode in ("reduced", "complete", "r")
        for shape in ((2, 5, 5), (7, 4), (2, 4, 7), (0, 3, 2))
    ],
    "geqrf.a": [(rand(*shape, dtype=d), {}) for d in DTYPES for shape in ((2, 5, 5), (7, 4), (2, 4, 7))],
    "linalg_householder_product.out": [
        (*torch.geqrf(rand(*shape, dtype=d)), {}) for d in DTYPES for shape in ((2, 5, 5), (7, 4))
    ] + [(a, tau[..., :2], {}) for a, tau in (torch.geqrf(rand(2, 6, 4)),)],
    "ormqr.out": [
        (a, tau, rand(*(2, 6, 3) if left else (2, 3, 6), dtype=d), left, transpose, {})
        for d in DTYPES for left in (False, True) for transpose in (False, True)
        for a, tau in (torch.geqrf(rand(2, 6, 4, dtype=d)),)
    ],
    "linalg_matrix_exp.out": [
        (rand(*shape, dtype=d) * scale, {}) for d in DTYPES for scale in (1e-3, 0.5, 3) for shape in ((1, 1), (2, 4, 4))
    ] + [(torch.zeros(0, 3, 3), {}), (torch.zeros(2, 0, 0), {}), (torch.zeros(3, 3), {}),
         (torch.stack((rand(3, 3) * 5, rand(3, 3) / 9)), {}),
         (rand(2, 3, 3).half(), {}), (rand(2, 3, 3).bfloat16(), {})],
    "linalg_pinv.atol_rtol_tensor_out": [
        (rand(*shape, dtype=d), {}) for d in DTYPES for shape in ((2, 5, 3), (3, 5), (4, 4), (0, 3, 2), (3, 0))
    ] + [
        (rand(2, 4, 4), {"atol": atol, "rtol": rtol}) for atol in (None, torch.tensor(0.5), torch.tensor([0.0, 0.9]))
        for rtol in (None, torch.tensor(0.3))
    ] + [(hermitian(2, 4, 4, dtype=d), {"hermitian": True}) for d in DTYPES]
      + [(torch.outer(torch.arange(4.0), torch.arange(3.0)), {})],
    "linalg_ldl_factor_ex.out": [
        (hermitian(2, n, n, dtype=d) - shift * torch.eye(n, dtype=d), {"hermitian": h, "out": (d, I32, I32)})
        for d in DTYPES for n in (1, 2, 3, 8) for shift in (0, 2) for h in (False, True)
    ] + [(hermitian(30, 30, dtype=F64), {"out": (F64, I32, I32)}),
         (torch.tensor([[0.0, 1], [1, 0]]), {"out": (F32, I32, I32)})],
    "linalg_ldl_solve.out": [
        (*aten.linalg_ldl_factor_ex(hermitian(2, n, n, dtype=d), hermitian=h)[:2], rand(2, n, 3, dtype=d),
         {"hermitian": h})
        for d in (F64, C128) for n in (1, 2, 5, 12) for h in (False, True)
    ],
}
# fmt: on


@pytest.mark.parametrize(
    ("op", "case"), [pytest.param(op, case, id=f"{op}-{i}") for op in CASES for i, case in enumerate(CASES[op])]
)
def test_as_torch(oracle: Oracle, op: str, case: tuple[Any, ...]) -> None:
    *arguments, keywords = case
    keywords = dict(keywords)
    expected = oracle.torch_result(f"aten::{op}", arguments, keywords, keywords.pop("out", None))
    for mode in oracle.modes:
        oracle.compare(f"aten::{op}", arguments, keywords, expected, mode, **LIMITS.get(arguments[0].dtype, {}))


# ---- what torch may factor otherwise, or up to a sign -------------------------------------------------


def run(oracle: Oracle, op: str, arguments: list[Any], dtypes: tuple[torch.dtype, ...]) -> list[torch.Tensor]:
    """The kernel's outputs."""
    outs = [np.zeros((7,), numpy_dtype(TORCH_DTYPES[d])) for d in dtypes]
    return [to_torch(a) for a in oracle.kernel(f"aten::{op}", map_tensors(arguments, to_numpy), outs, "bind")]


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, **LIMITS.get(expected.dtype, {}))


def is_unitary(q: torch.Tensor) -> None:
    close(q.mH @ q, torch.eye(q.shape[-1], dtype=q.dtype).expand(*q.shape[:-2], -1, -1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 5), (2, 3, 3), (1, 1), (0, 3, 3), (2, 0, 0)])
def test_determinants(oracle: Oracle, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    a = rand(*shape, dtype=dtype)
    det, lu, pivots = run(oracle, "_linalg_det.result", [a], (dtype, dtype, I32))
    close(det, aten._linalg_det(a)[0])
    p, low, up = aten.lu_unpack(lu, pivots)
    close(p @ low @ up, a)
    sign, logarithm, lu, pivots = run(oracle, "_linalg_slogdet.sign", [a], (dtype, real(dtype), dtype, I32))
    expected = aten._linalg_slogdet(a)
    close(sign, expected[0])
    close(logarithm, expected[1])
    close(aten.lu_unpack(lu, pivots)[2], up)


def test_determinants_of_singular_matrices(oracle: Oracle) -> None:
    assert run(oracle, "_linalg_det.result", [SINGULAR], (F32, F32, I32))[0] == 0
    sign, logarithm, *_ = run(oracle, "_linalg_slogdet.sign", [SINGULAR], (F32, F32, F32, I32))
    assert (sign, logarithm) == (0, -math.inf)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(
    ("of", "right"), [((5, 5), (5, 3)), ((2, 1, 4, 4), (3, 4, 4)), ((40, 40), (40, 2)), ((5, 5), (5,)),
                      ((2, 5, 5), (2, 5)), ((0, 3, 3), (0, 3, 2))]
)  # fmt: skip
def test_solutions(oracle: Oracle, dtype: torch.dtype, left: bool, of: tuple[int, ...], right: tuple[int, ...]) -> None:
    vector = len(right) < len(of) and right == of[:-1]
    if vector and not left:
        pytest.skip("vectors have no other side")
    a, b = well(*of, dtype=dtype), rand(*right, dtype=dtype)
    b = b if left else b.mT.contiguous()
    x, lu, pivots, info = run(oracle, "_linalg_solve_ex.result", [a, b, left, False], (dtype, dtype, I32, I32))
    close(x, aten._linalg_solve_ex(a, b, left=left)[0])
    p, low, up = aten.lu_unpack(lu, pivots)
    close(p @ low @ up, a)
    assert info.shape == a.shape[:-2]
    assert not info.any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("triangle", ["L", "U", "u"])
@pytest.mark.parametrize("shape", [(5, 5), (2, 3, 3), (1, 1), (0, 3, 3), (2, 0, 0)])
def test_hermitian_eigenvalues(oracle: Oracle, dtype: torch.dtype, triangle: str, shape: tuple[int, ...]) -> None:
    a = hermitian(*shape, dtype=dtype)
    a = (a.tril() if triangle == "L" else a.triu()) + 0 * a
    values, vectors = run(oracle, "_linalg_eigh.eigenvalues", [a, triangle, True], (real(dtype), dtype))
    expected = aten._linalg_eigh(a, triangle)
    close(values, expected[0])
    close(vectors * values[..., None, :] @ vectors.mH, expected[1] * expected[0][..., None, :] @ expected[1].mH)
    is_unitary(vectors)
    values, vectors = run(oracle, "_linalg_eigh.eigenvalues", [a, triangle, False], (real(dtype), dtype))
    close(values, expected[0])
    assert vectors.shape == (0,)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 5), (2, 3, 3), (1, 1), (0, 3, 3)])
def test_eigenvalues(oracle: Oracle, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    a = rand(*shape, dtype=dtype)
    wide = C64 if dtype in (F32, C64) else C128
    values, vectors = run(oracle, "linalg_eig.out", [a], (wide, wide))
    close(a.to(wide) @ vectors, vectors * values[..., None, :])
    close(vectors.norm(dim=-2), torch.ones(values.shape, dtype=real(wide)))
    close(values, aten.linalg_eig(a)[0])  # both libraries keep LAPACK's order


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", [(5, 5), (2, 5, 3), (2, 3, 5), (0, 3, 2), (3, 0)])
def test_singular_values(oracle: Oracle, dtype: torch.dtype, full: bool, shape: tuple[int, ...]) -> None:
    a = rand(*shape, dtype=dtype)
    u, s, vh = run(oracle, "_linalg_svd.U", [a, full, True, None], (dtype, real(dtype), dtype))
    expected = aten._linalg_svd(a, full)
    close(s, expected[1])
    assert (u.shape, vh.shape) == (expected[0].shape, expected[2].shape)
    k = s.shape[-1]
    close(u[..., :k] * s[..., None, :] @ vh[..., :k, :], a)
    is_unitary(u)
    is_unitary(vh.mH)
    u, s, vh = run(oracle, "_linalg_svd.U", [a, full, False, None], (dtype, real(dtype), dtype))
    close(s, expected[1])
    assert u.shape == vh.shape == (0,)


@pytest.mark.parametrize("op", ["linalg_cholesky_ex.L", "linalg_inv_ex.inverse", "linalg_lu_factor_ex.out"])
def test_what_cannot_be_factored_is_counted(oracle: Oracle, op: str) -> None:
    name = op.partition(".")[0]
    a = torch.stack((torch.eye(2), SINGULAR, -torch.eye(2)))
    rest: dict[str, list[Any]] = {"linalg_cholesky_ex": [False, False], "linalg_inv_ex": [False]}
    dtypes = (F32, I32, I32) if name == "linalg_lu_factor_ex" else (F32, I32)
    actual = run(oracle, op, [a, *rest.get(name, [True, False])], dtypes)
    assert torch.equal(actual[-1], getattr(aten, name)(a)[-1])


F = np.zeros((3, 3), np.float32)
N = np.full((3, 3), math.nan, np.float32)
I = np.zeros((3,), np.int32)  # noqa: E741
ONES = np.ones((2, 3, 3), np.float32)

# fmt: off
REFUSED: list[tuple[str, list[Any], list[Any], type[Exception], str]] = [
    ("linalg_inv_ex.inverse", [F[:2], False], [F, I], InvalidArgument,
     "argument 'A' must hold square matrices, but has shape (2, 3)"),
    ("linalg_inv_ex.inverse", [F.astype(np.float16), False], [F, I], InvalidType, "argument 'A' must be of float32"),
    ("linalg_inv_ex.inverse", [F, True], [F, I], InvalidArgument, "a matrix is singular"),
    ("linalg_inv_ex.inverse", [F.astype(np.complex64), False], [F, I], InvalidType, "cannot be cast"),
    ("_linalg_solve_ex.result", [ONES, ONES, True, True], [F, F, I, I], InvalidArgument,
     "a matrix is singular (matrix 0 of the batch, at 2)"),
    ("_linalg_solve_ex.result", [F, F[:2], True, False], [F, F, I, I], InvalidArgument,
     "arguments 'A' (3, 3) and 'B' (2, 3) do not fit together"),
    ("_linalg_solve_ex.result", [F, F[0], False, False], [F, F, I, I], InvalidArgument, "'left' must be True"),
    ("linalg_lu_factor_ex.out", [F[0], True, False], [F, I, I], InvalidArgument, "argument 'A' must hold matrices"),
    ("linalg_lu_factor_ex.out", [F, True, True], [F, I, I], InvalidArgument, "a matrix is singular"),
    ("linalg_lu_solve.out", [F, I, F, True, False], [F], InvalidArgument,
     "argument 'pivots' must hold numbers from 1 to 3"),
    ("lu_unpack.out", [F, I[:2], True, True], [F, F, F], InvalidArgument, "argument 'LU_pivots' must have shape (3,)"),
    ("cholesky.out", [-ONES, False], [F], InvalidArgument, "a matrix is not positive-definite"),
    ("linalg_cholesky_ex.L", [-ONES, False, True], [F, I], InvalidArgument, "a matrix is not positive-definite"),
    ("linalg_solve_triangular.out", [F, F.astype(np.float64), True, True, False], [F], InvalidType,
     "argument 'B' is float64"),
    ("_linalg_eigh.eigenvalues", [F, "X", True], [F, F], InvalidArgument, "argument 'UPLO' must be one of 'L', 'U'"),
    ("linalg_eig.out", [N], [F.astype(np.complex64)] * 2, InvalidArgument, "argument 'self' holds a matrix"),
    ("linalg_eig.out", [F], [F, F], InvalidType, "cannot be cast"),
    ("linalg_qr.out", [F, "raw"], [F, F], InvalidArgument, "argument 'mode' must be one of 'reduced'"),
    ("linalg_householder_product.out", [F[:2], F[0, :2]], [F], InvalidArgument, "must not have more columns than rows"),
    ("linalg_householder_product.out", [F[:, :2], F[0]], [F], InvalidArgument, "has 3 factors for 2 vectors"),
    ("ormqr.out", [F, F[0], F[:2], True, False], [F], InvalidArgument, "do not fit together"),
    ("linalg_pinv.atol_rtol_tensor_out", [F, F, None, False], [F], InvalidArgument, "argument 'atol' of shape (3, 3)"),
    ("linalg_ldl_solve.out", [F, I, F, False], [F], InvalidArgument, "argument 'pivots' must hold magnitudes"),
    ("linalg_ldl_factor_ex.out", [F, False, True], [F, I, I], InvalidArgument, "a matrix is singular"),
]
# fmt: on


@pytest.mark.parametrize(("op", "inputs", "outs", "fault", "message"), REFUSED)
def test_refused(
    oracle: Oracle, op: str, inputs: list[Any], outs: list[Any], fault: type[Exception], message: str
) -> None:
    oracle.assert_refused(f"aten::{op}", inputs, outs, fault, message)
