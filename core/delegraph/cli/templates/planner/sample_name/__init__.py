"""The memory planner SampleName for Delegraph: the largest tensor first, each at the lowest free place."""

from __future__ import annotations

from collections.abc import Sequence

from delegraph.interfaces import Lifetime, Plan

__all__ = ["plan"]


def plan(lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
    """Users write `memory_planner="sample_name"`. It runs without torch, and gives the same plan each time."""
    offsets = [0] * len(lifetimes)
    sizes = [0] * (max((tensor.memory_id for tensor in lifetimes), default=1) + 1)  # memory 0 is reserved
    placed: list[int] = []
    for index in sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].nbytes):
        tensor, offset = lifetimes[index], 0
        rivals = [i for i in placed if _meet(lifetimes[i], tensor)]
        for start, stop in sorted((offsets[i], offsets[i] + lifetimes[i].nbytes) for i in rivals):
            if offset + tensor.nbytes <= start:
                break
            offset = max(offset, _aligned(stop, alignment))
        offsets[index] = offset
        placed.append(index)
        sizes[tensor.memory_id] = max(sizes[tensor.memory_id], _aligned(offset + tensor.nbytes, alignment))
    return Plan(tuple(offsets), tuple(sizes), lower_bound=0)  # it proves nothing of other plans


def _meet(a: Lifetime, b: Lifetime) -> bool:
    """Whether two tensors are alive together in one memory."""
    return a.memory_id == b.memory_id and a.first <= b.last and b.first <= a.last


def _aligned(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment
