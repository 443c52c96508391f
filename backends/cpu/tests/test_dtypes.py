"""Dtypes that onnxruntime has no kernels for: halves are computed in float32, narrow integers in int32."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from backends.cpu.tests.harness import Lowered, as_array, declined, edge, run
from torch import nn
from torch.export import Dim

import delegraph


def float32(values: Any) -> np.ndarray:
    return np.asarray(values).astype(np.float32)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_half_model_is_one_delegate_nearer_to_float32_than_torch(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu").to(dtype).eval()
    x = torch.randn(2, 5, 32).to(dtype)
    program = edge(model, (x,))
    assert declined(program) == {}
    (ours,) = Lowered(program)(x)
    with torch.no_grad():
        eager, exact = model(x), model.float()(x.float())
    assert ours.dtype == as_array(eager).dtype
    ours_off, eager_off = float32(ours) - exact.numpy(), (eager.float() - exact).numpy()
    assert np.abs(ours_off).mean() < np.abs(eager_off).mean()
    assert np.abs(ours_off).max() <= torch.finfo(dtype).eps * exact.abs().max()  # one rounding, at the border


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_weights_keep_their_size_in_the_file(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(dtype)
    lowered = delegraph.lower(model, (torch.randn(3, 64).to(dtype),), backends=["cpu"])
    weights = sum(parameter.numel() for parameter in model.parameters())
    assert len(bytes(lowered)) < 2 * weights * 1.1 + 4096


def test_weights_that_a_half_cannot_hold_stay_float32() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32).bfloat16()

        def forward(self, x: torch.Tensor) -> Any:
            return self.first(x), self.second(x.bfloat16()).float()

    torch.manual_seed(0)
    model, x = Mixed().eval(), torch.randn(4, 32)
    ours = Lowered(edge(model, (x,)))(x)
    wanted = [value.detach().numpy() for value in model(x)]
    np.testing.assert_allclose(ours[0], wanted[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours[1], wanted[1], rtol=2**-7, atol=2**-7)


def test_a_cast_there_and_back_rounds() -> None:
    x = torch.tensor([1.001, 3.1415926, 1e-3])
    (ours,) = run(lambda t: t.bfloat16().float() + 0, x)
    assert ours.tolist() == x.bfloat16().float().tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("number", [0.1, 2.0**24 + 1, 1e-9])
def test_a_factor_is_the_number_itself_though_halves_do_not_hold_it(number: float, dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 1e-4, 3.1415926, -700.0, float("inf")], dtype=dtype)

    def scaled(t: torch.Tensor) -> Any:
        return t * number, t / number, number / t

    for ours, wanted in zip(run(scaled, x), scaled(x.float()), strict=True):
        np.testing.assert_array_equal(ours, as_array(wanted.to(dtype)))


def test_a_half_result_whose_size_is_only_known_when_it_is_there() -> None:
    """It is copied: no memory could be bound for it."""
    program = edge(nn.Hardtanh(), (torch.ones(4, 3).bfloat16(),), ({0: Dim("n", min=2, max=8)},))
    lowered = Lowered(program)
    for n in (2, 7):
        x = torch.linspace(-2, 2, n * 3).reshape(n, 3).bfloat16()
        (ours,) = lowered(x)
        assert ours.dtype == ml_dtypes.bfloat16
        assert float32(ours).tolist() == x.clamp(-1, 1).float().tolist()


NARROW: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "sub": lambda a, b: a - b,
    "neg": lambda a, b: -a,
    "shifted": lambda a, b: (a + 100) // 2,
    "compared": lambda a, b: (a > b, a == b, torch.maximum(a, b)),
    "bitwise": lambda a, b: (a & b, a | b, a ^ b, ~a),
    "sum": lambda a, b: (a.sum(), a.amax()),
    "where": lambda a, b: torch.where(a > b, a, b),
    "into_float": lambda a, b: a / 3,
    "clamp": lambda a, b: a.clamp(2, 100),
    "sort": lambda a, b: a.sort(),
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.uint8], ids=str)
@pytest.mark.parametrize("name", NARROW)
def test_narrow_integers_wrap_as_in_torch(name: str, dtype: torch.dtype) -> None:
    a = torch.tensor([1, 127, -128, 100, 32767, -32768, 255, 7]).to(dtype)
    b = torch.tensor([7, 3, 2, 100, 32767, 1, 255, -7]).to(dtype)
    wanted = torch.utils._pytree.tree_leaves(NARROW[name](a, b))
    for ours, torchs in zip(run(NARROW[name], a, b), wanted, strict=True):
        assert ours.dtype == torchs.numpy().dtype
        np.testing.assert_array_equal(ours, torchs.numpy())


# ---- integers beyond what a double holds ---------------------------------------------------------------------------


def totals(t: torch.Tensor) -> list[torch.Tensor]:
    over = [t.sum(0), t.sum((0, 2)), t.sum(), t.prod(0), t.prod(-1, keepdim=True), t.prod()]
    cast = [t.sum(1, dtype=torch.int32), t.int().sum(2), t.int().prod(1), t.to(torch.int16).prod(0)]
    return [*over, *cast, (t > 0).sum(1), torch.addbmm(t[0, :4], t.mT, t)]


@pytest.mark.parametrize("rows", [1, 3])
def test_sums_and_products_of_integers_are_exact_and_wrap(rows: int) -> None:
    torch.manual_seed(0)
    t = torch.randint(-(2**62), 2**62, (rows, 5, 4)) | 1  # of even ones a product soon is 0
    for ours, torchs in zip(run(totals, t), totals(t), strict=True):
        np.testing.assert_array_equal(ours, torchs.numpy(), strict=True)


# ---- numbers that a dtype does not hold ----------------------------------------------------------------------------

NOT_HELD = [
    (torch.int32, 2**40 + 3), (torch.int32, 0xFFFFFFFF), (torch.int32, -(2**33) - 5), (torch.int16, 2**17 + 3),
    (torch.int8, 300), (torch.int8, -200), (torch.uint8, 300), (torch.uint8, -16),
]  # fmt: skip
BESIDE: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "arithmetic": lambda t, n: (t + n, t - n, n - t, t * n),
    "division": lambda t, n: (t // n, t % n, torch.fmod(t, n), n // t),
    "comparison": lambda t, n: (t == n, t != n, t < n, t <= n, t > n, t >= n),
    "bits": lambda t, n: (t | n, t ^ n),
    "shifts": lambda t, n: (t << n, t >> n, n >> t),
    "no dims": lambda t, n: (torch.maximum(t, torch.tensor(n)), t // torch.tensor(n), t == torch.tensor(n)),
    "bounds without dims": lambda t, n: (t.clamp(max=torch.tensor(n)), t.clamp(torch.tensor(n), torch.tensor(5))),
    "places": lambda t, n: (torch.searchsorted(t, n), torch.bucketize(n, t)),
    "put": lambda t, n: t.index_put((torch.tensor([1]),), torch.tensor(n).to(t.dtype)),
}


@pytest.mark.parametrize(("dtype", "number"), NOT_HELD, ids=str)
@pytest.mark.parametrize("name", BESIDE)
def test_a_number_wraps_in_the_dtype_of_the_tensor(name: str, dtype: torch.dtype, number: int) -> None:
    t = torch.tensor([1, 2, 3, 5, 44, 56, 100, 127]).to(dtype)
    wanted = torch.utils._pytree.tree_leaves(BESIDE[name](t, number))
    for ours, torchs in zip(run(lambda t: BESIDE[name](t, number), t), wanted, strict=True):
        np.testing.assert_array_equal(ours, torchs.numpy())


REFUSED: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "clamp": lambda t, n: (t.clamp(max=n), t.clamp(min=n)),
    "scatter": lambda t, n: t.scatter(0, torch.tensor([1]), n),
    "full": lambda t, n: (torch.full_like(t, n), t.new_full((2,), n)),
}


@pytest.mark.parametrize(("dtype", "number"), NOT_HELD, ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_a_number_wraps_where_torch_refuses_it_too(name: str, dtype: torch.dtype, number: int) -> None:
    """As in the kernels of the libraries; torch exports such programs, but does not run them."""
    t = torch.tensor([1, 2, 3, 5, 44, 56, 100, 127]).to(dtype)
    wanted = torch.utils._pytree.tree_leaves(REFUSED[name](t, torch.tensor(number).to(dtype).item()))
    for ours, torchs in zip(run(lambda t: REFUSED[name](t, number), t), wanted, strict=True):
        np.testing.assert_array_equal(ours, torchs.numpy())


def test_padding_is_cast_from_a_float() -> None:
    t = torch.arange(3, dtype=torch.int32)
    (ours,) = run(lambda t: F.pad(t, (1, 0), value=2**40), t)
    assert ours.tolist() == [torch.tensor(2.0**40).int().item(), 0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool], ids=str)
@pytest.mark.parametrize("number", [300, -1, 300.0, -1.0, 1.7, 1e10, math.nan, math.inf], ids=str)
def test_a_constant_without_dims_is_cast_as_torch_casts_it(number: float, dtype: torch.dtype) -> None:
    def picked(t: torch.Tensor) -> torch.Tensor:
        return torch.where(t > 1, torch.tensor(number).to(dtype), t.to(dtype))

    t = torch.arange(4)
    np.testing.assert_array_equal(run(picked, t)[0], picked(t).numpy())


BESIDE_A_NUMBER: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "eq": lambda x, number: x == number,
    "ne": lambda x, number: x != number,
    "lt": lambda x, number: x < number,
    "le": lambda x, number: x <= number,
    "gt": lambda x, number: x > number,
    "ge": lambda x, number: x >= number,
    "add": lambda x, number: x + number,
    "sub": lambda x, number: x - number,
    "rsub": lambda x, number: number - x,
    "remainder": lambda x, number: x % number,
    "fmod": torch.fmod,
    "hardshrink": F.hardshrink,
    "isclose": lambda x, number: torch.isclose(x, torch.full_like(x, number)),
    "eq_clamped": lambda x, number: x.clamp(max=number) == x,
    "eq_where": lambda x, number: torch.where(x > 0, x, number) == number,
    "eq_filled": lambda x, number: x.masked_fill(x < 0, number) == number,
    "eq_tensor": lambda x, number: x == torch.tensor(number),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_a_number_is_rounded_to_halves_as_in_torch(dtype: torch.dtype) -> None:
    x = torch.tensor([0.3, 0.1, 0.7, 0.2, 1.1, 5.3, -0.3, -0.7, -2.9]).to(dtype)

    def every(x: torch.Tensor) -> list[torch.Tensor]:
        return [of(x, number) for of in BESIDE_A_NUMBER.values() for number in (0.3, -0.7)]

    results = zip(run(every, x), every(x), strict=True)
    names = [name for name in BESIDE_A_NUMBER for _ in range(2)]
    off = {name for name, (ours, eager) in zip(names, results, strict=True) if (ours != as_array(eager)).any()}
    assert not off


SCALED: dict[str, Callable[..., torch.Tensor]] = {
    "a factor": lambda a, b: (a @ b) * 0.1,
    "a quotient": lambda a, b: a @ b / 3.7,
    "alpha": lambda a, b: torch.addmm(a, a, b, beta=0.6, alpha=0.2),
    "by batches": lambda a, b: torch.baddbmm(a[None], a[None], b[None], beta=0.6, alpha=0.2),
    "a factor next to 1": lambda a, b: (a * (1 + 1e-12) - a) * 1e12,
    "a transform": lambda a, b: torch.fft.irfft(a, norm="ortho") + 16777217.1 * b[:, :1],
}


@pytest.mark.parametrize("name", SCALED)
def test_factors_of_doubles_keep_their_digits(name: str) -> None:
    """onnxruntime would make them attributes of products, which have 32 bits, or compare them with 1 in 32 bits."""
    a, b = (torch.linspace(-3, 5, 36, dtype=torch.float64).view(6, 6) * factor for factor in (1, 0.7))
    np.testing.assert_allclose(run(SCALED[name], a, b)[0], SCALED[name](a, b).numpy(), rtol=1e-13, atol=1e-13)
