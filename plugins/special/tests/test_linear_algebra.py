"""Factorisations, and what is solved with them, against torch; by their product where signs are not determined."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels.factorizations import (
    assert_eigenvalues,
    assert_exponential,
    assert_hermitian_eigenvalues,
    assert_ldl,
    assert_lu,
    assert_qr,
    assert_reflections,
    assert_singular_values,
)
from tests.kernels.oracle import TORCH_DTYPES, Oracle, map_tensors, to_numpy, to_torch

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.program import numpy_dtype

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
         (torch.zeros(0, 0), torch.zeros(0, 2), {"upper": True})],
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
    "linalg_householder_product.out": [
        (*torch.geqrf(rand(*shape, dtype=d)), {}) for d in DTYPES for shape in ((2, 5, 5), (7, 4))
    ] + [(a, tau[..., :2], {}) for a, tau in (torch.geqrf(rand(2, 6, 4)),)],
    "ormqr.out": [
        (a, tau, rand(*(2, 6, 3) if left else (2, 3, 6), dtype=d), left, transpose, {})
        for d in DTYPES for left in (False, True) for transpose in (False, True)
        for a, tau in (torch.geqrf(rand(2, 6, 4, dtype=d)),)
    ],
    "linalg_pinv.atol_rtol_tensor_out": [
        (rand(*shape, dtype=d), {}) for d in DTYPES for shape in ((2, 5, 3), (3, 5), (4, 4), (0, 3, 2), (3, 0))
    ] + [
        (rand(2, 4, 4), {"atol": atol, "rtol": rtol}) for atol in (None, torch.tensor(0.5), torch.tensor([0.0, 0.9]))
        for rtol in (None, torch.tensor(0.3))
    ] + [(hermitian(2, 4, 4, dtype=d), {"hermitian": True}) for d in DTYPES]
      + [(torch.outer(torch.arange(4.0), torch.arange(3.0)), {})],
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


SHAPES = [(1, 1), (2, 5, 5), (2, 7, 4), (2, 4, 7), (0, 3, 3), (3, 0), (0, 3)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [*SHAPES, (90, 90), (40, 70)])
def test_lu_factors(oracle: Oracle, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    a = rand(*shape, dtype=dtype)
    lu, pivots, info = run(oracle, "linalg_lu_factor_ex.out", [a, True, False], (dtype, I32, I32))
    assert_lu(a, lu, pivots)
    assert not info.any()
    p, low, up = run(oracle, "linalg_lu.out", [a, True], (dtype, dtype, dtype))
    for actual, expected in zip((p, low, up), aten.lu_unpack(lu, pivots), strict=True):
        assert torch.equal(actual, expected)


def test_lu_factors_of_zeros(oracle: Oracle) -> None:
    lu, pivots, info = run(oracle, "linalg_lu_factor_ex.out", [torch.zeros(3, 3), True, False], (F32, I32, I32))
    assert (lu.tolist(), pivots.tolist(), info) == ([[0.0] * 3] * 3, [1, 2, 3], 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 5, 5), (7, 4), (4, 7)])
def test_lu_factors_without_pivots(oracle: Oracle, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Which torch has on a GPU only."""
    a = rand(*shape, dtype=dtype) + 5 * torch.eye(*shape[-2:], dtype=dtype)
    p, low, up = run(oracle, "linalg_lu.out", [a, False], (dtype, dtype, dtype))
    assert p.numel() == 0
    close(low @ up, a)
    assert torch.equal(low, low.tril()) and torch.equal(up, up.triu())
    packed, pivots, info = run(oracle, "linalg_lu_factor_ex.out", [a, False, False], (dtype, I32, I32))
    assert torch.equal(packed.triu()[..., : min(shape[-2:]), :], up)
    assert (pivots == torch.arange(1, min(shape[-2:]) + 1)).all() and not info.any()


def test_a_zero_without_pivots_is_counted(oracle: Oracle) -> None:
    a = torch.tensor([[0.0, 1.0], [1.0, 1.0]])
    assert run(oracle, "linalg_lu_factor_ex.out", [a, False, False], (F32, I32, I32))[2] == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", ["reduced", "complete", "r"])
@pytest.mark.parametrize("shape", [(2, 5, 5), (7, 4), (2, 4, 7), (0, 3, 2)])
def test_orthogonal_factors(oracle: Oracle, dtype: torch.dtype, mode: str, shape: tuple[int, ...]) -> None:
    a = rand(*shape, dtype=dtype)
    q, r = run(oracle, "linalg_qr.out", [a, mode], (dtype, dtype))
    expected = aten.linalg_qr(a, mode)
    assert (q.shape, r.shape) == (expected[0].shape, expected[1].shape)
    assert_qr(a, q, r)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 5, 5), (7, 4), (2, 4, 7)])
def test_reflections(oracle: Oracle, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    a = rand(*shape, dtype=dtype)
    assert_reflections(a, *run(oracle, "geqrf.a", [a], (dtype, dtype)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("hermitian_", [False, True])
@pytest.mark.parametrize("shift", [0, 2])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 8, 30])
def test_ldl_factors(oracle: Oracle, dtype: torch.dtype, hermitian_: bool, shift: float, n: int) -> None:
    a = hermitian(2, n, n, dtype=dtype) - shift * torch.eye(n, dtype=dtype)
    ld, pivots, info = run(oracle, "linalg_ldl_factor_ex.out", [a, hermitian_, False], (dtype, I32, I32))
    assert not info.any()
    assert torch.equal(ld, ld.tril())
    assert_ldl(a, ld, pivots, hermitian_)


def test_ldl_factors_with_a_block_of_two(oracle: Oracle) -> None:
    a = torch.tensor([[0.0, 1], [1, 0]])
    ld, pivots, info = run(oracle, "linalg_ldl_factor_ex.out", [a, False, False], (F32, I32, I32))
    assert (pivots.tolist(), info) == ([-2, -2], 0)
    assert_ldl(a, ld, pivots, False)


# fmt: off
EXPONENTS = [
    (rand(*shape, dtype=d) * scale) for d in DTYPES for scale in (1e-3, 0.5, 3) for shape in ((1, 1), (2, 4, 4))
] + [torch.zeros(0, 3, 3), torch.zeros(2, 0, 0), torch.zeros(3, 3), torch.stack((rand(3, 3) * 5, rand(3, 3) / 9)),
     rand(2, 3, 3).half(), rand(2, 3, 3).bfloat16()]
# fmt: on


@pytest.mark.parametrize("a", EXPONENTS, ids=range(len(EXPONENTS)))
def test_exponentials(oracle: Oracle, a: torch.Tensor) -> None:
    for mode in oracle.modes:
        ((actual, _),) = oracle.results("aten::linalg_matrix_exp.out", [a], {}, [torch.empty_like(a)], mode)
        assert_exponential(a, actual)


def test_an_exponential_of_what_is_not_finite(oracle: Oracle) -> None:
    a = torch.stack((torch.eye(2), torch.full((2, 2), math.nan), torch.full((2, 2), math.inf)))
    (actual,) = run(oracle, "linalg_matrix_exp.out", [a], (F32,))
    close(actual[0], math.e * torch.eye(2))
    assert actual[1:].isnan().all()


def test_a_zero_on_the_diagonal_of_a_triangle(oracle: Oracle) -> None:
    a, b = torch.tensor([[1.0, 1.0], [0.0, 0.0]]), torch.ones(2, 1)
    (actual,) = run(oracle, "linalg_solve_triangular.out", [a, b, True, True, False], (F32,))
    assert not actual.isfinite().any()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 5), (2, 3, 3), (1, 1), (0, 3, 3), (2, 0, 0)])
def test_determinants(oracle: Oracle, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    a = rand(*shape, dtype=dtype)
    det, lu, pivots = run(oracle, "_linalg_det.result", [a], (dtype, dtype, I32))
    close(det, aten._linalg_det(a)[0])
    assert_lu(a, lu, pivots)
    sign, logarithm, lu, pivots = run(oracle, "_linalg_slogdet.sign", [a], (dtype, real(dtype), dtype, I32))
    expected = aten._linalg_slogdet(a)
    close(sign, expected[0])
    close(logarithm, expected[1])
    assert_lu(a, lu, pivots)


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
    assert_lu(a, lu, pivots)
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
    assert_hermitian_eigenvalues(expected[1] * expected[0][..., None, :] @ expected[1].mH, values, vectors)
    values, vectors = run(oracle, "_linalg_eigh.eigenvalues", [a, triangle, False], (real(dtype), dtype))
    close(values, expected[0])
    assert vectors.shape == (0,)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 5), (2, 3, 3), (1, 1), (0, 3, 3)])
def test_eigenvalues(oracle: Oracle, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    a = rand(*shape, dtype=dtype)
    wide = C64 if dtype in (F32, C64) else C128
    values, vectors = run(oracle, "linalg_eig.out", [a], (wide, wide))
    assert_eigenvalues(a, values, vectors)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", [(5, 5), (2, 5, 3), (2, 3, 5), (0, 3, 2), (3, 0)])
def test_singular_values(oracle: Oracle, dtype: torch.dtype, full: bool, shape: tuple[int, ...]) -> None:
    a = rand(*shape, dtype=dtype)
    u, s, vh = run(oracle, "_linalg_svd.U", [a, full, True, None], (dtype, real(dtype), dtype))
    expected = aten._linalg_svd(a, full)
    close(s, expected[1])
    assert (u.shape, vh.shape) == (expected[0].shape, expected[2].shape)
    assert_singular_values(a, u, s, vh)
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
