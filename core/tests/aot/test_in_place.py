"""Buffers are updated where they lie, unless something still reads what they held."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import delegraph


class Cache(torch.nn.Module):
    def __init__(self, update: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]) -> None:
        super().__init__()
        self.register_buffer("cache", torch.arange(24.0).reshape(6, 4))
        self.update = update

    def forward(self, position: torch.Tensor, row: torch.Tensor) -> Any:
        return self.update(self.cache, position, row)


def _put(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    return cache.index_put_((position,), row)


def _put_and_read_before(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    total = cache.sum()
    _put(cache, position, row * total)
    return cache.sum(0) + total


def _twice(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    _put(cache, position, row)
    middle = cache * 2
    _put(cache, position - 1, row + 1)
    return middle + cache


def _read_old_after(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    old = cache.clone()
    new = cache.index_put((position,), row)
    result = new.sum() + old  # the old values are read after the update
    cache.copy_(new)
    return result + cache


def _from_itself(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    return _put(cache, position, cache[position + 1] + row)


def _old_is_a_result(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
    old = cache + 0
    return _put(cache, position, row) * 1, old


def _two_versions(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, ...]:
    one, other = cache.index_put((position,), row), cache.index_put((position - 1,), row)
    cache.copy_(other)
    return one, other


def _slice_and_scatter(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    cache[2:3].copy_(row)
    cache.scatter_(0, position[None].expand(1, 4), row)
    return cache.sum(0)


def _two_indices(cache: torch.Tensor, position: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    cache.index_put_((position, torch.tensor([2])), row[0, :1], accumulate=True)
    return cache * 1


UPDATES = {
    "slices": (_slice_and_scatter, True),
    "two indices": (_two_indices, True),
    "update": (_put, True),
    "read before": (_put_and_read_before, True),
    "twice": (_twice, True),
    "the old value is read after": (_read_old_after, False),
    "from itself": (_from_itself, True),
    "the old value is a result": (_old_is_a_result, True),
    "two versions": (_two_versions, None),
}


@pytest.mark.parametrize("name", UPDATES)
def test_the_same_as_eager_over_several_calls(name: str) -> None:
    update, in_place = UPDATES[name]
    model = Cache(update)
    eager = copy.deepcopy(model)
    calls = [(torch.tensor([i]), torch.full((1, 4), float(i))) for i in (1, 3, 4)]
    lowered = delegraph.lower(model, calls[0])
    run = delegraph.load(bytes(lowered))
    for call in calls:
        torch.testing.assert_close(run(*call), eager(*call))
    if in_place is not None:
        names = {str(operator) for operator in lowered.program.executorch_program.execution_plan[0].operators}
        assert ("aten::copy_" not in names) == in_place


def test_a_cache_is_planned_once() -> None:
    lowered = delegraph.lower(Cache(_put_and_read_before), (torch.tensor([1]), torch.zeros(1, 4)))
    assert lowered.program.memory["forward"].planned_bytes < 2 * 6 * 4 * 4
