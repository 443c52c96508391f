"""`index_add` and `index_copy` at places that are not there: torch raises an error, also for those below 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import delegraph
from delegraph.errors import InvalidArgument

BACKENDS: list[list[str]] = [[], ["cpu"]]


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


CALLS: dict[str, Callable[..., torch.Tensor]] = {
    "add": lambda x, i, v: x.index_add(0, i, v),
    "add, along the last dim": lambda x, i, v: x.T.index_add(-1, i, v.T),
    "add, times": lambda x, i, v: x.index_add(0, i, v, alpha=2),
    "add, at computed places": lambda x, i, v: x.index_add(0, i * 1, v),
    "add, integers": lambda x, i, v: x.long().index_add(0, i, v.long()),
    "copy": lambda x, i, v: x.index_copy(0, i, v),
    "copy, along the last dim": lambda x, i, v: x.T.index_copy(1, i, v.T),
    "copy, at computed places": lambda x, i, v: x.index_copy(0, i + 0, v),
    "copy, bools": lambda x, i, v: (x > 0).index_copy(0, i, v > 0),
}


@pytest.mark.parametrize("backends", BACKENDS, ids=str)
@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("case", CALLS)
def test_places_are_not_counted_from_the_end(case: str, index: torch.dtype, backends: list[str]) -> None:
    if index == torch.int32 and "copy" in case:
        pytest.skip("torch copies at int64 alone")
    model = Calls(CALLS[case])
    x, values = torch.randn(4, 3) * 9, torch.randn(2, 3) * 9
    run = delegraph.load(
        bytes(delegraph.lower(model, (x, torch.tensor([1, 0], dtype=index), values), backends=backends))
    )
    for places in ([1, 0], [3, 3] if "add" in case else [3, 1]):
        there = torch.tensor(places, dtype=index)
        torch.testing.assert_close(torch.as_tensor(run(x, there, values)), model(x, there, values))
    for places in ([-1, 0], [0, 4], [-5, 1]):
        with pytest.raises(InvalidArgument):
            run(x, torch.tensor(places, dtype=index), values)


class Cache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("rows", torch.zeros(1, 2, 8, 4))

    def forward(self, place: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        self.rows.index_copy_(2, place, new)
        return self.rows.sum(2)


@pytest.mark.parametrize("backends", BACKENDS, ids=str)
def test_a_cache_that_is_copied_into(backends: list[str]) -> None:
    example = torch.tensor([0]), torch.randn(1, 2, 1, 4)
    run = delegraph.load(bytes(delegraph.lower(Cache(), example, backends=backends)))
    eager = Cache()
    for place in (3, 0, 7):
        step = torch.tensor([place]), torch.randn(1, 2, 1, 4)
        torch.testing.assert_close(torch.as_tensor(run(*step)), eager(*step))
    with pytest.raises(InvalidArgument):
        run(torch.tensor([-1]), example[1])
