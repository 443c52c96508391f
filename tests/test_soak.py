"""Hundred thousand runs of each kind of program: nothing grows, neither memory nor objects, threads or open files."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import delegraph
from delegraph.errors import DelegraphError

pytestmark = pytest.mark.soak

RUNS = 100_000
MOST_BYTES = 2**20
"""What the process may grow over the other runs: under 12 bytes a run, less than the smallest object (16)."""


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.linear(x))
        self.total.add_(y.sum(0))
        return y + self.total


def lowered(backends: list[str], dynamic: bool = False) -> bytes:
    shapes = ({0: torch.export.Dim("batch", min=1, max=8)},) if dynamic else None
    return bytes(delegraph.lower(Net().eval(), (torch.randn(4, 8),), dynamic_shapes=shapes, backends=backends))


def inputs(*rows: int) -> list[np.ndarray[Any, Any]]:
    return [np.ones((count, 8), np.float32) for count in rows]


def of_one_shape(backends: list[str]) -> Callable[[], object]:
    module, (x,) = delegraph.load(lowered(backends)), inputs(4)
    return lambda: module(x)


def of_many_shapes(backends: list[str]) -> Callable[[], object]:
    """More shapes than are kept."""
    module, given = delegraph.load(lowered(backends, dynamic=True)), cycle(inputs(1, 2, 3, 4, 5, 6, 7, 8))
    return lambda: module(next(given))


def of_sessions(backends: list[str]) -> Callable[[], object]:
    module, (x,) = delegraph.load(lowered(backends)), inputs(4)

    def run() -> None:
        twin = module.fork()
        twin(x)
        twin.state.reset()
        module.state.restore(twin.state.copy())

    return run


def of_faults(backends: list[str]) -> Callable[[], object]:
    """Calls that are refused, between those that are not."""
    module, given = delegraph.load(lowered(backends)), cycle([*inputs(4, 3), np.ones((4, 8)), None])

    def run() -> None:
        with suppress(DelegraphError, TypeError):
            module(next(given))

    return run


def of_loading(backends: list[str]) -> Callable[[], object]:
    file, (x,) = lowered(backends), inputs(4)
    return lambda: delegraph.load(file)(x)


KINDS = {
    made.__name__: (made, runs)
    for made, runs in (
        (of_one_shape, RUNS),
        (of_many_shapes, RUNS),
        (of_faults, RUNS),
        (of_sessions, RUNS // 20),
        (of_loading, RUNS // 100),
    )
}


@pytest.mark.parametrize("backends", [[], ["cpu"]], ids=["portable", "cpu"])
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_grows(kind: str, backends: list[str]) -> None:
    make, runs = KINDS[kind]
    run = make(backends)
    for _ in range(runs // 10):  # until caches are full: the last shapes, the allocator's arenas
        run()
    held()
    before = held()
    for _ in range(runs):
        run()
    after = held()
    assert after["bytes"] - before["bytes"] < MOST_BYTES
    assert after["objects"] - before["objects"] < 10, "less than one in a hundred runs"
    assert (after["threads"], after["files"]) == (before["threads"], before["files"])


def held() -> dict[str, int]:
    """What the process has now."""
    gc.collect()
    objects, process = len(gc.get_objects()), psutil.Process()  # counting takes memory itself
    return {
        "objects": objects,
        "bytes": process.memory_info().rss,
        "threads": process.num_threads(),
        "files": process.num_fds(),
    }
