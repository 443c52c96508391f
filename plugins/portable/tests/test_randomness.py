"""Random kernels: seeds, the moments of distributions, shapes and dtypes, and what is refused."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from tests.kernels.oracle import Oracle, to_numpy

import delegraph_portable
from delegraph.errors import InvalidArgument, InvalidType, RuntimeFault

Array = np.ndarray[Any, Any]
COUNT = 40_000
SHAPE = (200, 200)
LIKE = np.zeros(SHAPE, np.float32)
FLOAT_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.fixture(autouse=True)
def seed() -> None:
    delegraph_portable.manual_seed(20240607)


def empty(dtype: torch.dtype, shape: tuple[int, ...] = SHAPE) -> Array:
    return to_numpy(torch.zeros(shape).to(dtype))


def draw(oracle: Oracle, op: str, *inputs: Any, dtype: torch.dtype = torch.float32, shape: Any = SHAPE) -> Array:
    (out,) = oracle.kernel(f"aten::{op}", list(inputs), [empty(dtype, shape)], "run")
    return np.asarray(out)


# operator, inputs, mean, variance
MOMENTS: list[tuple[str, list[Any], float, float]] = [
    ("rand.out", [SHAPE], 1 / 2, 1 / 12),
    ("rand.generator_out", [SHAPE, None], 1 / 2, 1 / 12),
    ("rand_like.out", [LIKE, None], 1 / 2, 1 / 12),
    ("rand_like.generator_out", [LIKE, None, None], 1 / 2, 1 / 12),
    ("randn.out", [SHAPE], 0, 1),
    ("randn.generator_out", [SHAPE, None], 0, 1),
    ("randn_like.out", [LIKE, None], 0, 1),
    ("randn_like.generator_out", [LIKE, None, None], 0, 1),
    ("randint.out", [10, SHAPE], 4.5, 8.25),
    ("randint.generator_out", [10, SHAPE, None], 4.5, 8.25),
    ("randint.low_out", [-10, 10, SHAPE], -0.5, 33.25),
    ("randint.low_generator_out", [-10, 10, SHAPE, None], -0.5, 33.25),
    ("randint_like.out", [LIKE, 10, None], 4.5, 8.25),
    ("randint_like.generator_out", [LIKE, 10, None, None], 4.5, 8.25),
    ("randint_like.Tensor_out", [LIKE, np.array(10), None], 4.5, 8.25),
    ("randint_like.Tensor_generator_out", [LIKE, np.array(10), None, None], 4.5, 8.25),
    ("randint_like.low_dtype_out", [LIKE, 5, 15, None], 9.5, 8.25),
    ("randint_like.low_generator_dtype_out", [LIKE, 5, 15, None, None], 9.5, 8.25),
    ("uniform.out", [LIKE, -1.0, 3.0, None], 1, 16 / 12),
    ("normal.float_float_out", [2.0, 3.0, SHAPE, None], 2, 9),
    ("normal.Tensor_float_out", [np.full(SHAPE, 2, np.float32), 3.0, None], 2, 9),
    ("normal.float_Tensor_out", [2.0, np.full(SHAPE, 3, np.float32), None], 2, 9),
    ("normal.Tensor_Tensor_out", [np.full((200, 1), 2, np.float32), np.full(200, 3, np.float32), None], 2, 9),
    ("exponential.out", [LIKE, 2.0, None], 1 / 2, 1 / 4),
    ("geometric.out", [LIKE, 0.25, None], 4, 12),
    ("log_normal.out", [LIKE, 0.5, 0.5, None], math.exp(0.625), (math.exp(0.25) - 1) * math.exp(1.25)),
    ("poisson.out", [np.full(SHAPE, 3.5, np.float32), None], 3.5, 3.5),
    ("bernoulli.out", [np.full(SHAPE, 0.3, np.float32), None], 0.3, 0.21),
    ("bernoulli.float_out", [LIKE, 0.3, None], 0.3, 0.21),
    ("bernoulli.Tensor_out", [LIKE, np.full(200, 0.3, np.float32), None], 0.3, 0.21),
]


@pytest.mark.parametrize(("op", "inputs", "mean", "variance"), MOMENTS, ids=[row[0] for row in MOMENTS])
def test_moments(oracle: Oracle, op: str, inputs: list[Any], mean: float, variance: float) -> None:
    for mode in ("run", "constant"):
        (out,) = oracle.kernel(f"aten::{op}", inputs, [empty(torch.float32)], mode)
        assert abs(out.mean(dtype=np.float64) - mean) < 6 * math.sqrt(variance / COUNT)
        assert abs(out.var(dtype=np.float64) / variance - 1) < 0.2


def test_cauchy_has_its_quartiles(oracle: Oracle) -> None:
    out = draw(oracle, "cauchy.out", LIKE, 1.0, 2.0, None)
    np.testing.assert_allclose(np.quantile(out, [0.25, 0.5, 0.75]), [-1, 1, 3], atol=0.15)


@pytest.mark.parametrize("dtype", [*FLOAT_DTYPES, torch.complex64, torch.complex128])
def test_rand_stays_below_one_in_every_dtype(oracle: Oracle, dtype: torch.dtype) -> None:
    out = draw(oracle, "rand.out", SHAPE, dtype=dtype)
    for part in (out.real, out.imag) if dtype.is_complex else (out,):
        values = part.astype(np.float64)
        assert values.min() >= 0
        assert values.max() < 1
        assert abs(values.mean() - 0.5) < 0.02


@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_uniform_stays_below_its_upper_bound(oracle: Oracle, dtype: torch.dtype) -> None:
    out = draw(oracle, "uniform.out", empty(dtype), 1.0, 1.01, None, dtype=dtype).astype(np.float64)
    assert out.min() >= 1
    assert out.max() < 1.01 or dtype == torch.bfloat16  # whose next number after 1 is 1.0078
    assert np.all(draw(oracle, "uniform.out", LIKE, 2.0, 2.0, None) == 2)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_normal_numbers_have_variance_one(oracle: Oracle, dtype: torch.dtype) -> None:
    out = draw(oracle, "randn.out", SHAPE, dtype=dtype)
    assert abs(out.real.var() - 0.5) < 0.03
    assert abs(out.imag.var() - 0.5) < 0.03
    assert abs((out.real * out.imag).mean()) < 0.02


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64, torch.uint16, torch.float16, torch.float32])
def test_randint_fills_its_range(oracle: Oracle, dtype: torch.dtype) -> None:
    assert sorted(np.unique(draw(oracle, "randint.low_out", 3, 9, SHAPE, dtype=dtype)).tolist()) == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
@pytest.mark.parametrize("n", [0, 1, 100])
def test_randperm_is_a_permutation(oracle: Oracle, dtype: torch.dtype, n: int) -> None:
    for op, options in (("randperm.out", []), ("randperm.generator_out", [None])):
        out = draw(oracle, op, n, *options, dtype=dtype, shape=(n,))
        assert sorted(out.tolist()) == list(range(n))


def test_randperm_takes_every_order(oracle: Oracle) -> None:
    orders = [tuple(draw(oracle, "randperm.out", 3, dtype=torch.int64, shape=(3,)).tolist()) for _ in range(3000)]
    counts = [orders.count(order) for order in sorted(set(orders))]
    assert len(counts) == 6
    assert min(counts) > 380
    assert max(counts) < 620


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize("dtype", FLOAT_DTYPES)
def test_multinomial_follows_the_weights(oracle: Oracle, replacement: bool, dtype: torch.dtype) -> None:
    weights = to_numpy(torch.tensor([1.0, 0.0, 3.0, 4.0]).to(dtype).expand(5000, 4).clone())
    out = draw(oracle, "multinomial.out", weights, 3, replacement, None, dtype=torch.int64, shape=(5000, 3))
    first = np.bincount(out[:, 0], minlength=4) / 5000
    np.testing.assert_allclose(first, [1 / 8, 0, 3 / 8, 1 / 2], atol=0.04)
    assert not (out == 1).any()
    if not replacement:
        assert all(len(set(row)) == 3 for row in out.tolist())


def test_multinomial_of_one_row(oracle: Oracle) -> None:
    weights = np.array([0, 2, 0], np.float32)
    assert draw(oracle, "multinomial.out", weights, 4, True, None, dtype=torch.int64, shape=(4,)).tolist() == [1] * 4
    out = draw(oracle, "multinomial.out", np.zeros((0, 3), np.float32), 2, True, None, dtype=torch.int64, shape=(0, 2))
    assert out.shape == (0, 2)


def test_a_complex_tensor_drops_out_whole(oracle: Oracle) -> None:
    ones = np.full(SHAPE, 1 + 2j, np.complex64)
    outs = [np.zeros_like(ones), np.zeros(SHAPE, np.bool_)]
    result, mask = oracle.kernel("aten::native_dropout.out", [ones, 0.5, True], outs, "run")
    assert np.allclose(result, np.where(mask, 2 + 4j, 0))
    assert abs(mask.mean() - 0.5) < 0.03


# ---- seeds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("op", "inputs"), [(row[0], row[1]) for row in MOMENTS], ids=[row[0] for row in MOMENTS])
def test_equal_seeds_give_equal_numbers(oracle: Oracle, op: str, inputs: list[Any]) -> None:
    delegraph_portable.manual_seed(7)
    first, next_ = draw(oracle, op, *inputs), draw(oracle, op, *inputs)
    delegraph_portable.manual_seed(7)
    again = draw(oracle, op, *inputs)
    delegraph_portable.manual_seed(8)
    second = draw(oracle, op, *inputs)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, next_)
    assert not np.array_equal(first, second)


def test_a_bound_call_draws_anew_each_time(oracle: Oracle) -> None:
    out = empty(torch.float32)
    call = oracle.bind("aten::rand.out", [SHAPE], [out])
    call()
    first = out.copy()
    call()
    assert not np.array_equal(first, out)


def test_a_negative_seed_is_a_seed(oracle: Oracle) -> None:
    delegraph_portable.manual_seed(-1)
    first = draw(oracle, "rand.out", SHAPE)
    delegraph_portable.manual_seed(-1)
    assert np.array_equal(first, draw(oracle, "rand.out", SHAPE))


def test_threads_share_the_generator(oracle: Oracle) -> None:
    """Together they draw the numbers that one of them would, whoever comes first."""

    def one(_: int) -> bytes:
        return draw(oracle, "randn.out", (50,), shape=(50,)).tobytes()

    with ThreadPoolExecutor(4) as pool:
        together = sorted(pool.map(one, range(200)))
    delegraph_portable.manual_seed(20240607)
    assert together == sorted(map(one, range(200)))


# ---- refusals ----------------------------------------------------------------------------------------

REFUSED: list[tuple[str, list[Any], torch.dtype, type[RuntimeFault], str]] = [
    ("rand.out", [[2]], torch.int64, InvalidType, "argument 'out' must be floating-point or complex, but is int64"),
    ("rand.out", [[-2]], torch.float32, InvalidArgument, "argument 'size' has a negative dimension: [-2]"),
    ("randint.low_out", [3, 3, [2]], torch.int64, InvalidArgument, "leave no number to draw"),
    ("randint.out", [300, [2]], torch.uint8, InvalidArgument, "do not fit uint8"),
    ("randint.low_out", [-1, 3, [2]], torch.uint8, InvalidArgument, "do not fit uint8"),
    ("randint.out", [3, [2]], torch.bool, InvalidType, "argument 'out' must be integer or floating-point"),
    ("randperm.out", [-1], torch.int64, InvalidArgument, "argument 'n' must not be negative, but is -1"),
    ("randperm.out", [300], torch.uint8, InvalidArgument, "argument 'n' is 300"),
    ("uniform.out", [LIKE, 1.0, 0.0, None], torch.float32, InvalidArgument, "make no range"),
    ("uniform.out", [LIKE, 0.0, math.inf, None], torch.float32, InvalidArgument, "make no range"),
    ("exponential.out", [LIKE, 0.0, None], torch.float32, InvalidArgument, "argument 'lambd' must be positive"),
    ("geometric.out", [LIKE, 1.0, None], torch.float32, InvalidArgument, "argument 'p' must lie between 0 and 1"),
    ("cauchy.out", [LIKE, 0.0, 0.0, None], torch.float32, InvalidArgument, "argument 'sigma' must be positive"),
    ("log_normal.out", [LIKE, 0.0, 0.0, None], torch.float32, InvalidArgument, "argument 'std' must be positive"),
    ("normal.float_float_out", [0.0, -1.0, [2], None], torch.float32, InvalidArgument, "must not be negative"),
    ("normal.Tensor_float_out", [LIKE, -1.0, None], torch.float32, InvalidArgument, "must not be negative"),
    ("normal.float_Tensor_out", [0.0, LIKE - 1, None], torch.float32, InvalidArgument, "must not be negative"),
    ("bernoulli.float_out", [LIKE, 1.5, None], torch.float32, InvalidArgument, "argument 'p' must be between 0 and 1"),
    ("bernoulli.Tensor_out", [LIKE, LIKE + 2, None], torch.float32, InvalidArgument, "argument 'p' must hold numbers"),
    ("bernoulli.out", [LIKE * np.nan, None], torch.float32, InvalidArgument, "argument 'p' must hold numbers"),
    ("poisson.out", [LIKE - 1, None], torch.float32, InvalidArgument, "argument 'self' holds a rate that is negative"),
    ("multinomial.out", [LIKE, 2, True, None], torch.int64, InvalidArgument, "has a row without a positive weight"),
    ("multinomial.out", [LIKE - 1, 2, True, None], torch.int64, InvalidArgument, "holds a weight that is negative"),
    ("multinomial.out", [LIKE + 1, 201, False, None], torch.int64, InvalidArgument, "argument 'num_samples' is 201"),
    ("multinomial.out", [LIKE + 1, 0, True, None], torch.int64, InvalidArgument, "argument 'num_samples' is 0"),
    ("multinomial.out", [LIKE + 1, 2, True, None], torch.int32, InvalidType, "argument 'out' must be int64"),
]


@pytest.mark.parametrize(("op", "inputs", "dtype", "fault", "message"), REFUSED)
def test_refused(
    oracle: Oracle, op: str, inputs: list[Any], dtype: torch.dtype, fault: type[RuntimeFault], message: str
) -> None:
    with pytest.raises(fault) as caught:
        draw(oracle, op, *inputs, dtype=dtype)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"aten::{op}: ")
