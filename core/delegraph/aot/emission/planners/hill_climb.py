"""Tensors of one memory and an order of them -> a better order's offsets: best fit, improved by swapping."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from delegraph.aot.emission.planners.best_fit import place
from delegraph.aot.emission.planners.one_memory import OneMemory, height

__all__ = ["hill_climb"]

CLIMB_BUDGET: Final = 400_000
"""Pairs that hill climbing may look at (about 0.2 s)."""

CLIMB_ROUNDS: Final = 30
"""Swaps that hill climbing may try per tensor; small problems need no more."""

CLOSE_ENOUGH: Final = 0.005
"""Hill climbing stops at a plan that is larger than the lower bound by this part of it."""


def hill_climb(memory: OneMemory, conflicts: Sequence[Sequence[int]], order: Sequence[int]) -> list[int]:
    """Swap a highest tensor with one that pushed it up and place all again, until close to the lower bound.

    The idea is Vela's (`hillclimb_allocation.py`). The choice of the swap is random, from a fixed seed.
    """
    choice = Random(0)
    order = list(order)
    best = place(memory, conflicts, order)
    top, goal = height(memory, best), memory.lower_bound * (1 + CLOSE_ENOUGH)
    cost = len(order) + sum(map(len, conflicts))
    for _ in range(min(CLIMB_BUDGET // cost, CLIMB_ROUNDS * len(order))):
        if top <= goal:
            break
        position = {i: at for at, i in enumerate(order)}
        highest = choice.choice([i for i in order if best[i] + memory.sizes[i] == top])
        pushers = {j for j in conflicts[highest] if position[j] < position[highest]}
        pushers |= {k for j in pushers for k in conflicts[j] if position[k] < position[highest]}
        if not pushers:
            break
        changed = list(order)
        a, b = position[highest], position[choice.choice(sorted(pushers))]
        changed[a], changed[b] = changed[b], changed[a]
        offsets = place(memory, conflicts, changed)
        if (new_top := height(memory, offsets)) <= top:
            order, best, top = changed, offsets, new_top
    return best
