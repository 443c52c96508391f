"""Sizes that depend on values keep the bounds that the model states, through decompositions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import delegraph
from delegraph.aot.functional.functionalize import functionalize
from delegraph.errors import InvalidArgument, UnboundedDimension

X, REPEATS = torch.ones(4, 3), torch.tensor([1, 2, 3, 4])


class Regulator(nn.Module):
    """A length regulator of text to speech: each row as often as it lasts."""

    def __init__(self, bound: int | None = 80) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, x: torch.Tensor, repeats: torch.Tensor) -> torch.Tensor:
        y = torch.repeat_interleave(x, repeats, dim=0)
        if self.bound is not None:
            torch._check(y.shape[0] <= self.bound)
        return y * 2


class TwoRegulators(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.short, self.long = Regulator(8), Regulator(20)

    def forward(self, x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, z = self.short(x, first), self.long(x, second)
        return y, z, torch.cat([y, z])


@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=["kernels", "cpu"])
def test_a_stated_bound_survives_decomposition(backends: list[str]) -> None:
    model = Regulator()
    run = delegraph.load(bytes(delegraph.lower(model, (X, REPEATS), backends=backends)))
    for last in (0, 5, 74):
        repeats = torch.tensor([1, 2, 3, last])
        torch.testing.assert_close(run(X, repeats), model(X, repeats))


def test_two_calls_of_one_form_have_two_sizes() -> None:
    """They share a template, and with it shared the symbol of their sizes."""
    model, more = TwoRegulators(), torch.tensor([5, 5, 5, 5])
    program = functionalize(torch.export.export(model, (X, REPEATS, more)), {})
    (output,) = program.graph.find_nodes(op="output")
    y, z, _ = (node.meta["val"].shape[0] for node in output.args[0])
    assert str(y) != str(z)
    run = delegraph.load(bytes(delegraph.lower(model, (X, REPEATS, more))))
    fewer = torch.tensor([2, 2, 2, 2])
    for result, expected in zip(run(X, fewer, more), model(X, fewer, more), strict=True):
        torch.testing.assert_close(result, expected)
    with pytest.raises(InvalidArgument, match=r"the upper bound \[8\] cannot become \[20\]"):
        run(np.ones((4, 3), np.float32), more.numpy(), fewer.numpy())


def test_a_size_without_a_bound_is_still_refused() -> None:
    with pytest.raises(UnboundedDimension, match="depends on the data"):
        delegraph.lower(Regulator(None), (X, REPEATS))
