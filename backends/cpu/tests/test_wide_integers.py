"""Integers as torch has them, to the limits of their dtypes: onnxruntime's own operators are not all exact there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
import torch

import delegraph


class Function(torch.nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


def edges(dtype: torch.dtype) -> torch.Tensor:
    """0, 1, powers of two, the limits, each with its neighbours, of both signs."""
    limits = torch.iinfo(dtype)
    near = [n + d for n in (0, 2**24, 2**31, 2**32, 2**53, limits.max) for d in (-1, 0, 1)]
    numbers = sorted({n for each in near for n in (each, -each) if limits.min <= n <= limits.max} | {limits.min})
    return torch.tensor([*numbers, 1_700_000_000_000 % limits.max, 5, 7, -7], dtype=dtype)


Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
OF_TWO: Final[dict[str, Binary]] = {
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "floor_divide": torch.floor_divide,
    "divided towards zero": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "greater": torch.gt,
    "sum": torch.add,
    "product": torch.mul,
    "clamp by a tensor": lambda a, b: a.clamp(min=b),
    "shift": lambda a, b: a << (b & 127),
    "chosen": lambda a, b: torch.where(a > b, a, b),
}
OF_ONE: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "sign": torch.sign,
    "absolute": torch.abs,
    "clamp from below": lambda a: a.clamp(min=1),
    "clamp from above": lambda a: a.clamp(max=2**31 - 2),
    "clamp": lambda a: a.clamp(-5, 2**31 - 7),
    "floor_divide by a number": lambda a: a // 1000,
    "largest": lambda a: a.amax(0, keepdim=True),
    "largest of each row": lambda a: torch.stack([a.roll(n) for n in range(len(a))]).unfold(1, 9, 1).amax(2),
    "least of a table": lambda a: torch.stack([a.roll(n) for n in range(9)], 1).unfold(0, 9, 1).amin((1, 2)),
    "largest with its place": lambda a: torch.cat(torch.stack([a, a.roll(3)]).max(1)),
    "place of the smallest": lambda a: a.argmin(0, keepdim=True),
    "sorted": lambda a: a.sort().values,
    "sums": lambda a: a.cumsum(0),
}


def check(function: Callable[..., torch.Tensor], *args: torch.Tensor) -> None:
    lowered = delegraph.lower(Function(function), args, backends=["cpu"])
    assert not lowered.report.methods["forward"].leftovers
    result: Any = delegraph.load(bytes(lowered))(*(arg.numpy() for arg in args))
    np.testing.assert_array_equal(result, function(*args).numpy())


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8], ids=str)
@pytest.mark.parametrize("name", OF_TWO)
def test_of_two(name: str, dtype: torch.dtype) -> None:
    values = edges(dtype)
    a, b = (part.reshape(-1).contiguous() for part in torch.meshgrid(values, values, indexing="ij"))
    if any(word in name for word in ("divide", "remainder", "fmod")):
        fails = (b == 0) | ((a == torch.iinfo(dtype).min) & (b == -1))  # in torch, which the latter ends
        b = torch.where(fails, 3, b)
    check(OF_TWO[name], a, b)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("name", OF_ONE)
def test_of_one(name: str, dtype: torch.dtype) -> None:
    check(OF_ONE[name], edges(dtype))
