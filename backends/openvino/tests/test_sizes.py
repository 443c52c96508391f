"""Dynamic sizes, and what is computed from them, do not cut a graph: one delegate and nothing left, at any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from backends.openvino.tests.harness import Function, check, declined, load, lower
from torch.export import Dim

import delegraph
from delegraph.errors import UnboundedDimension

N, M = Dim("N", min=2, max=16), Dim("M", min=2, max=16)
WEIGHT = torch.nn.Linear(8, 8).requires_grad_(False)


def arithmetic(x: torch.Tensor) -> list[torch.Tensor]:
    """Each operator of Python on sizes, as a factor of its own."""
    n, m = x.shape
    y = x.sigmoid()
    numbers = [n * m, n + m, n - m, -n, m // 2, (n - m) // 3, (n - m) % 3, torch.sym_max(n, m), torch.sym_min(n, 5)]
    return [y * number for number in (*numbers, y.numel(), torch.sym_sum([n, m, 1]))]


def masks(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Padding and order, as attention has them."""
    n, m, _ = x.shape
    places = torch.arange(m)
    seen = (places[None] < lengths[:, None])[:, None] & (places[:, None] >= places[None] + 0)
    q = WEIGHT(x.view(n * m, 8)).view(n, m, 8) + torch.sin(places[:, None].float())
    return F.scaled_dot_product_attention(q, q, q, attn_mask=seen)


def counted(x: torch.Tensor) -> torch.Tensor:
    """Places counted up, and how far apart they are: integers that 32 bits hold, since there are few."""
    places = torch.cumsum(torch.ones_like(x[:, 0], dtype=torch.int64), 0) - 1
    apart = (places[:, None] - places[None]).abs()
    return torch.where(torch.maximum(apart, -apart) < 3, apart, apart + 1) * x.sum()


def between(x: torch.Tensor) -> torch.Tensor:
    """The size of a value that the delegate makes itself."""
    y = torch.cat([x, x.sin()], 1)
    return WEIGHT(y.reshape(y.shape[0] * y.shape[1], 8)).view(y.shape[0], y.shape[1], 2, 4).transpose(1, 2) * y.shape[1]


def in_front(x: torch.Tensor) -> torch.Tensor:
    """Dims of 1 that an expand puts in front of sizes which stay: OpenVINO takes an `Expand` to ones for nothing."""
    return (x * 2).view(x.shape[1]).expand(1, 1, x.shape[1])


CASES: dict[str, tuple[Callable[..., Any], Callable[..., tuple[torch.Tensor, ...]], tuple[Any, ...]]] = {
    "arithmetic": (arithmetic, lambda n, m: (torch.randn(n, m),), ({0: N, 1: M},)),
    "masks": (
        masks, lambda n, m: (torch.randn(n, m, 8), torch.randint(1, m + 1, (n,), dtype=torch.int32)),
        ({0: N, 1: M}, {0: N}),
    ),
    "counted": (counted, lambda n, m: (torch.randn(n, m),), ({0: N, 1: M},)),
    "between": (between, lambda n, m: (torch.randn(n, m, 8),), ({0: N, 1: M},)),
    "in front": (in_front, lambda n, m: (torch.randn(1, m),), ({1: M},)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_sizes_stay_within_one_delegate(name: str) -> None:
    function, make, shapes = CASES[name]
    torch.manual_seed(0)
    others = [make(n, m) for n, m in ((2, 16), (16, 3), (7, 7))]
    check(function, *make(3, 5), dynamic_shapes=shapes, others=others, atol=1e-5)


def test_a_size_that_is_needed_outside_is_computed_there_too() -> None:
    """What a delegate gives are tensors."""

    def half_outside(x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0] * 2
        return torch.erfinv(x.sigmoid() / 2).expand(n // 2, 4) * n  # there is no converter for erfinv

    x = torch.randn(3, 4)
    lowered = lower(half_outside, (x,), ({0: N},))
    run = load(lowered)
    for size in (2, 9):
        x = torch.randn(size, 4)
        np.testing.assert_allclose(run(x.numpy()), half_outside(x).numpy(), atol=1e-5)


def test_an_input_is_not_taken_for_its_sizes_alone() -> None:
    lowered = lower(lambda x, y: x.sigmoid() * y.shape[0], (torch.randn(4), torch.randn(3, 2)), ({}, {0: N}))
    assert "nothing but sizes of args_1 is read" in declined(lowered).values()
    found = load(lowered)(np.ones(4, np.float32), np.ones((5, 2), np.float32))
    np.testing.assert_allclose(found, np.full(4, 5 / (1 + np.exp(-1.0)), np.float32), rtol=1e-5)


def test_a_dim_without_a_limit_is_told_as_such() -> None:
    """Its places fit; that memory for it cannot be planned is what the user hears."""
    with pytest.raises(UnboundedDimension, match="dimension 0 of input 'args_0' has no upper bound"):
        lower(counted, (torch.randn(3, 5),), ({0: Dim.DYNAMIC},))


def test_integers_without_a_limit_are_left() -> None:
    """OpenVINO's CPU device computes int64 in 32 bits: a running sum of what nobody knows might be wider."""
    model = Function(lambda x: torch.cumsum(x, 0))
    lowered = delegraph.lower(model, (torch.tensor([2**31, 1]),), backends=["openvino"])
    assert any("may be wider" in reason for reason in declined(lowered).values())
    assert delegraph.load(bytes(lowered))(np.array([2**31, 2**31])).tolist() == [2**31, 2**32]


def test_compiling_takes_no_size_for_a_number() -> None:
    """The program would have that size alone from then on, for whoever lowers it next."""
    model = Function(lambda x: F.linear(x.sin(), x))
    exported = torch.export.export(model, (torch.randn(4, 3),), dynamic_shapes=(({0: N},),))
    delegraph.lower(exported, backends=["openvino"])
    x = torch.randn(6, 3)
    torch.testing.assert_close(delegraph.load(bytes(delegraph.lower(exported)))(x), model(x))


LAYERS = {
    "convolution": lambda x: F.conv2d(x, torch.full((16, 3, 3, 3), 0.25)),
    "pool": lambda x: F.max_pool2d(x, 2),
    "pool without a batch": lambda x: F.avg_pool1d(x[:, 0, 0], 2),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_behind_a_choice_read_what_it_gave(name: str) -> None:
    """The first run of a size, and one with more rows than any before, are as right as others."""

    class Chosen(torch.nn.Module):
        """A layer of one of two results."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return LAYERS[name](torch.cond(x.sum() > 0, lambda y: y * 2, torch.neg, (x,)))

    calls = [torch.rand(rows, 3, 8, 8) + 1 for rows in (4, 6, 3, 9)]
    lowered = delegraph.lower(Chosen(), (calls[0],), dynamic_shapes=({0: N},), backends=["openvino"])
    run = load(lowered)
    for x in calls:
        np.testing.assert_allclose(run(x.numpy()), Chosen()(x).numpy(), rtol=1e-5)
