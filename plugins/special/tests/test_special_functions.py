"""Special functions: to float64 accuracy against mpmath, to float32 accuracy against torch, and at their edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import torch
from tests.kernels.oracle import Oracle, to_numpy

from delegraph.errors import InvalidArgument, InvalidType
from delegraph_special import library

Array = np.ndarray[Any, Any]
inf, nan = math.inf, math.nan

POSITIVE = np.concatenate([np.geomspace(1e-8, 600, 20), np.linspace(0.01, 60, 20)])
BOTH = np.concatenate([POSITIVE, -POSITIVE])
OFF_POLES = -np.random.default_rng(0).uniform(0, 40, 40)
INSIDE_ONE = np.concatenate(
    [np.linspace(-1, 1, 41)[1:-1], 1 - np.geomspace(1e-16, 0.5, 20), np.geomspace(1e-300, 1, 20)[:-1]]
)

# operator: mpmath's function, where, largest error relative to the value and to 1
ACCURACY: dict[str, tuple[Callable[[Any], Any], Array, float, float]] = {
    "digamma": (mp.digamma, np.concatenate([POSITIVE, OFF_POLES]), 1e-12, 1e-14),
    "erfc": (mp.erfc, np.linspace(-30, 26, 57), 1e-13, 0),
    "erfinv": (mp.erfinv, INSIDE_ONE, 2e-15, 0),
    "i0": (lambda x: mp.besseli(0, x), BOTH, 2e-15, 0),
    "lgamma": (lambda x: mp.log(abs(mp.gamma(x))), np.concatenate([POSITIVE, OFF_POLES]), 1e-14, 1e-13),
    "special_airy_ai": (mp.airyai, np.linspace(-40, 60, 51), 5e-14, 2e-14),
    "special_bessel_j0": (lambda x: mp.besselj(0, x), BOTH, 0, 2e-15),
    "special_bessel_j1": (lambda x: mp.besselj(1, x), BOTH, 0, 2e-15),
    "special_bessel_y0": (lambda x: mp.bessely(0, x), POSITIVE, 1e-14, 2e-15),
    "special_bessel_y1": (lambda x: mp.bessely(1, x), POSITIVE, 1e-14, 2e-15),
    "special_erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), np.linspace(-26, 1000, 51), 1e-13, 0),
    "special_i0e": (lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), BOTH, 2e-15, 0),
    "special_i1": (lambda x: mp.besseli(1, x), BOTH, 2e-15, 0),
    "special_i1e": (lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), BOTH, 2e-15, 0),
    "special_modified_bessel_i0": (lambda x: mp.besseli(0, x), BOTH, 2e-15, 0),
    "special_modified_bessel_i1": (lambda x: mp.besseli(1, x), BOTH, 2e-15, 0),
    "special_modified_bessel_k0": (lambda x: mp.besselk(0, x), POSITIVE, 2e-15, 0),
    "special_modified_bessel_k1": (lambda x: mp.besselk(1, x), POSITIVE, 2e-15, 0),
    "special_scaled_modified_bessel_k0": (lambda x: mp.besselk(0, x) * mp.exp(x), POSITIVE, 2e-15, 0),
    "special_scaled_modified_bessel_k1": (lambda x: mp.besselk(1, x) * mp.exp(x), POSITIVE, 2e-15, 0),
    "special_spherical_bessel_j0": (lambda x: mp.sin(x) / x, BOTH, 1e-13, 1e-16),
}
NAMES = [*ACCURACY, "special_ndtri"]


def exactly(function: Callable[..., Any], *operands: Array, digits: int = 30) -> Array:
    """`function` of mpmath, element by element with so many digits, rounded once."""
    with mp.workdps(digits):
        return np.array([float(function(*map(mp.mpf, values))) for values in zip(*operands, strict=True)])


def run(oracle: Oracle, op: str, *inputs: Any, dtype: Any = np.float64) -> Array:
    shape = np.broadcast_shapes(*(np.shape(i) for i in inputs))
    (out,) = oracle.kernel(f"aten::{op}", list(inputs), [np.zeros(shape, dtype)], "run")
    return np.asarray(out)


@pytest.mark.parametrize("name", ACCURACY)
def test_accuracy(oracle: Oracle, name: str) -> None:
    function, x, relative, absolute = ACCURACY[name]
    actual, expected = run(oracle, f"{name}.out", x), exactly(function, x)
    assert np.array_equal(np.isinf(actual), np.isinf(expected))
    np.testing.assert_allclose(actual, expected, relative, max(absolute, 1e-300))


def test_the_quantile_is_the_inverse_of_the_distribution(oracle: Oracle) -> None:
    p = np.concatenate([np.geomspace(1e-320, 0.5, 60), np.linspace(0, 1, 41)[1:-1]])
    quantiles = run(oracle, "special_ndtri.out", p)
    np.testing.assert_allclose(exactly(mp.ncdf, quantiles), p, 1e-12)


def test_airy_far_out(oracle: Oracle) -> None:
    """Where SciPy gives NaN; the phase's last digit is what limits the exactness."""
    x = np.array([-1e6, -1.1e6, -1e7, -1e9, 1e7, 1e300])
    np.testing.assert_allclose(run(oracle, "special_airy_ai.out", x[:4]), exactly(mp.airyai, x[:4]), 0, 1e-4)
    assert (run(oracle, "special_airy_ai.out", x[4:]) == 0).all()


@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_polygamma_is_accurate(oracle: Oracle, n: int) -> None:
    x = np.linspace(0.05, 60, 60)
    expected = exactly(lambda v: mp.polygamma(n, v), x)
    np.testing.assert_allclose(run(oracle, "polygamma.out", n, x), expected, 3e-15)


def test_zeta_is_accurate(oracle: Oracle) -> None:
    random = np.random.default_rng(0)
    s, q = random.uniform(1, 60, 60), random.uniform(0.01, 50, 60)
    expected = exactly(mp.zeta, s, q, digits=150)  # mpmath's are digits after the point
    np.testing.assert_allclose(run(oracle, "special_zeta.out", s, q), expected, 1e-14)


@pytest.mark.parametrize(("low", "high"), [(1e-6, 1), (1, 20), (20, 100), (100, 1000)])
def test_incomplete_gamma_functions_are_accurate(oracle: Oracle, low: float, high: float) -> None:
    random = np.random.default_rng(0)
    a = random.uniform(low, high, 40)
    x = a * np.exp(random.normal(0, 1, 40) * np.minimum(1, 3 / np.sqrt(a)))
    lower = exactly(lambda a, x: mp.gammainc(a, 0, x, regularized=True), a, x)
    upper = exactly(lambda a, x: mp.gammainc(a, x, mp.inf, regularized=True), a, x)
    np.testing.assert_allclose(run(oracle, "igamma.out", a, x), lower, 3e-12, 1e-200)
    np.testing.assert_allclose(run(oracle, "igammac.out", a, x), upper, 3e-12, 1e-200)


def test_incomplete_gamma_of_a_large_parameter(oracle: Oracle) -> None:
    """As torch's, which is 4 % off as SciPy's is: both cut the same series after 2,000 terms."""
    a, x = torch.tensor([9975755.0, 9975755.0]).double(), torch.tensor([9961363.0, 9975755.0]).double()
    oracle.check("aten::igamma.out", a, x)


def test_lgamma_keeps_its_digits_near_its_zeros(oracle: Oracle) -> None:
    x = np.concatenate([centre + sign * np.geomspace(1e-13, 0.4, 200) for centre in (1, 2) for sign in (1, -1)])
    np.testing.assert_allclose(run(oracle, "lgamma.out", x), exactly(mp.loggamma, x), 2e-14)


def test_lgamma_of_denormal_numbers(oracle: Oracle) -> None:
    x = np.array([5e-324, 1e-310, np.finfo(np.float64).tiny])
    for operand in (x, -x):
        expected = exactly(lambda value: mp.log(abs(mp.gamma(value))), operand)
        np.testing.assert_allclose(run(oracle, "lgamma.out", operand), expected, 1e-15)


def test_zeros_have_the_sign_that_torch_gives_them(oracle: Oracle) -> None:
    zeros, poles = torch.tensor([0.0, -0.0]).double(), torch.tensor([1.0, 2.0]).double()
    for operator, operand in ((torch.erfinv, zeros), (torch.lgamma, poles)):
        actual = run(oracle, f"{operator.__name__}.out", operand.numpy())
        assert np.array_equal(np.signbit(actual), operator(operand).signbit().numpy())


# ---- against torch -----------------------------------------------------------------------------------

FLOAT_EDGES = torch.tensor([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, 1e-30, 1e5])
EDGES: dict[str, torch.Tensor] = {
    **dict.fromkeys(NAMES, FLOAT_EDGES),
    "special_airy_ai": torch.tensor([nan, inf, -inf, 0.0, 200.0, 1e30, 1.0]),
}
WITHOUT_HALVES = {name for name in NAMES if name.startswith("special_") and name not in
                  ("special_i0e", "special_i1", "special_i1e")}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_edges_are_as_in_torch(oracle: Oracle, name: str) -> None:
    oracle.check(f"aten::{name}.out", EDGES[name])
    oracle.check(f"aten::{name}.out", EDGES[name].double())


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.uint16])
@pytest.mark.parametrize("name", NAMES)
def test_integers_give_float32(oracle: Oracle, name: str, dtype: torch.dtype) -> None:
    oracle.check(f"aten::{name}.out", torch.tensor([0, 1, 2, 5]).to(dtype), out_dtype=torch.float32)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", sorted(set(NAMES) - WITHOUT_HALVES))
def test_halves(oracle: Oracle, name: str, dtype: torch.dtype) -> None:
    oracle.check(f"aten::{name}.out", torch.linspace(-0.9, 3, 20).to(dtype))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (2, 3)])
def test_shapes(oracle: Oracle, name: str, shape: tuple[int, ...]) -> None:
    oracle.check(f"aten::{name}.out", torch.full(shape, 0.75))


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_polygamma_as_in_torch(oracle: Oracle, n: int) -> None:
    oracle.check("aten::polygamma.out", n, torch.tensor([0.3, 1.0, 2.5, 40.0, -0.5, -2.25, nan, 0.0]))
    oracle.check("aten::polygamma.out", n, torch.tensor([1, 2, 9]), out_dtype=torch.float32)


def test_zeta_as_in_torch(oracle: Oracle) -> None:
    s, q = torch.tensor([1.0, 0.5, 2.0, 3.5, nan, 30.0])[:, None], torch.tensor([1.0, 0.0, -1.0, -1.5, 7.5, nan])
    oracle.check("aten::special_zeta.out", s[:4], q)
    oracle.check("aten::special_zeta.out", s[5:], q)
    oracle.check("aten::special_zeta.self_scalar_out", 2.5, q, out_dtype=torch.float32)
    oracle.check("aten::special_zeta.self_scalar_out", 3, torch.tensor([1, 2]), out_dtype=torch.float32)
    oracle.check("aten::special_zeta.other_scalar_out", torch.tensor([1, 2, 3]), 1.5, out_dtype=torch.float32)


@pytest.mark.parametrize("op", ["aten::igamma.out", "aten::igammac.out"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_incomplete_gamma_edges_as_in_torch(oracle: Oracle, op: str, dtype: torch.dtype) -> None:
    values = torch.tensor([0.0, -1.0, 0.5, 1.0, 30.0, 250.0, inf], dtype=dtype)
    oracle.check(op, values[:, None], values)
    oracle.check(
        op,
        torch.tensor([nan, 2.0, nan, inf, nan, nan], dtype=dtype),
        torch.tensor([1.0, nan, nan, nan, 0.0, inf], dtype=dtype),
    )


# ---- orthogonal polynomials --------------------------------------------------------------------------

POLYNOMIALS = sorted(
    op.removeprefix("aten::").removesuffix(".out")
    for op in library.operator_names()
    if "_polynomial_" in op and op.endswith(".out")
)
X = torch.tensor([0.0, 1.0, -1.0, 0.3, -0.7, 0.999, 1.5, -2.5, 0.5, nan])


def test_all_polynomials_are_there() -> None:
    assert len(POLYNOMIALS) == 12


@pytest.mark.parametrize("name", POLYNOMIALS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_polynomials_of_degrees(oracle: Oracle, name: str, dtype: torch.dtype) -> None:
    degrees = torch.tensor([-3.0, 0.0, 1.0, 2.0, 3.7, 5.0, 8.0, 9.0, 20.0], dtype=dtype)[:, None]
    x = X[:-1].to(dtype)  # of NaN torch returns what the stack holds
    op = f"aten::{name}.out"
    expected = oracle.torch_result(op, [x, degrees], {}, dtype)
    for mode in oracle.modes:
        # cos(n arccos x) multiplies the rounding of arccos by n
        oracle.compare(op, [x, degrees], {}, expected, mode, rtol=2e-5 if dtype == torch.float32 else 1e-11, atol=1e-5)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials_of_a_number(oracle: Oracle, name: str) -> None:
    oracle.check(f"aten::{name}.n_scalar_out", X[:8], 4)
    oracle.check(f"aten::{name}.n_scalar_out", torch.tensor([1, 2, 0]), 3, out_dtype=torch.float32)
    oracle.check(f"aten::{name}.x_scalar_out", 0.4, torch.tensor([0, 1, 2, 5]), out_dtype=torch.float32)
    oracle.check(f"aten::{name}.out", torch.zeros(0), torch.zeros(1))


@pytest.mark.parametrize("name", ["special_hermite_polynomial_h", "special_hermite_polynomial_he"])
def test_hermite_polynomials_end_where_their_dtype_does(oracle: Oracle, name: str) -> None:
    oracle.check(f"aten::{name}.out", torch.tensor([0.5, 0.5]), torch.tensor([128.0, 129.0]))


@pytest.mark.parametrize("name", ["special_chebyshev_polynomial_t", "special_legendre_polynomial_p"])
def test_a_high_degree_ends_in_nan_where_it_overflows(oracle: Oracle, name: str) -> None:
    oracle.check(f"aten::{name}.out", torch.tensor([3.0, 1.0, -1.0]), torch.tensor([5000.0, 5000.0, 5001.0]))


# ---- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lgamma", "special_bessel_j0", "erfinv"])
def test_complex_numbers_are_refused(oracle: Oracle, name: str) -> None:
    with pytest.raises(InvalidType, match="argument 'self' must be bool or integer or floating-point"):
        run(oracle, f"{name}.out", np.ones(2, np.complex64))


def test_other_refusals(oracle: Oracle) -> None:
    with pytest.raises(InvalidArgument, match="argument 'n' must not be negative, but is -1"):
        run(oracle, "polygamma.out", -1, np.ones(2))
    with pytest.raises(InvalidType, match="must be floating-point, but is int64"):
        run(oracle, "igamma.out", np.ones(2, np.int64), np.ones(2, np.int64))
    with pytest.raises(InvalidType, match="cannot be cast to the int64 of argument 'out'"):
        run(oracle, "lgamma.out", np.ones(2), dtype=np.int64)
    with pytest.raises(InvalidType, match="argument 'x' must be floating-point"):
        run(oracle, "special_legendre_polynomial_p.out", to_numpy(torch.ones(2) + 1j), np.ones(2))
