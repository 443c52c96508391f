"""Dtypes that onnxruntime has no kernels for: halves are computed in float32, narrow integers in int32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
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
