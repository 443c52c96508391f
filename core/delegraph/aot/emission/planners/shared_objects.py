"""Tensors of one memory -> offsets, as ExecuTorch's greedy planner chooses them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from delegraph.aot.emission.planners.one_memory import OneMemory

__all__ = ["shared_objects"]


def shared_objects(memory: OneMemory, conflicts: Sequence[Sequence[int]]) -> list[int]:
    """ExecuTorch's greedy: share whole buffers between tensors that are never alive together, then lay these out.

    It is here so that no plan is ever larger than ExecuTorch's (`exir/memory_planning.py`, greedy): in order of size,
    into the first object without a live member, else into the first with room behind them, else into a new one.
    """
    sizes = memory.sizes
    owner: dict[int, int] = {}  # tensor -> object
    at: dict[int, int] = {}  # tensor -> offset in the object
    extents: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        busy: dict[int, int] = {}  # object -> end of its members that are alive with i
        for j in conflicts[i]:
            if j in owner:
                busy[owner[j]] = max(busy.get(owner[j], 0), at[j] + sizes[j])
        chosen = next((o for o in range(len(extents)) if o not in busy), None)
        if chosen is None:
            chosen = next((o for o in sorted(busy) if busy[o] + sizes[i] <= extents[o]), len(extents))
        if chosen == len(extents):
            extents.append(sizes[i])
        owner[i], at[i] = chosen, busy.get(chosen, 0)
    bases = list(accumulate(extents, initial=0))
    return [bases[owner[i]] + at[i] for i in range(len(sizes))]
