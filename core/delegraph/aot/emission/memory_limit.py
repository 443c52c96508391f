"""A plan and the memories' sizes -> nothing, or an error that lists the tensors alive at the peak of one too small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from delegraph.aot.emission.method import EmittedMethod
from delegraph.aot.graph.memory_use import MemoryUse, memory_use, part_of
from delegraph.aot.graph.source_location import user_location
from delegraph.errors import LoweringError
from delegraph.interfaces.memory_hierarchy import MemoryHierarchy
from delegraph.interfaces.memory_planner import Lifetime, Plan

__all__ = ["check_limits"]

_SHOWN: Final = 12
"""How many tensors an error lists, the largest first."""


def check_limits(
    method: EmittedMethod, lifetimes: Sequence[Lifetime], plan: Plan, hierarchy: MemoryHierarchy, planner: str
) -> None:
    """Raise `LoweringError` for the first memory that is smaller than its plan. `planner`: the name of who made it."""
    for memory_id, memory in enumerate(hierarchy.memories, 1):
        needed = plan.buffer_sizes[memory_id] if memory_id < len(plan.buffer_sizes) else 0
        if memory.nbytes is None or needed <= memory.nbytes:
            continue
        here = [lifetime for lifetime in lifetimes if lifetime.memory_id == memory_id]
        step, most = _peak(here)
        alive = sorted(
            (lifetime for lifetime in here if lifetime.first <= step <= lifetime.last),
            key=lambda lifetime: -lifetime.nbytes,
        )
        listed = [_line(method, lifetime) for lifetime in alive[:_SHOWN]]
        more = [f"    and {len(alive) - _SHOWN} more"] if len(alive) > _SHOWN else []
        raise LoweringError(
            "\n".join(
                [
                    f"method {method.name!r} needs {needed:,} bytes of memory {memory.name!r} (memory_id {memory_id}),"
                    f" which has {memory.nbytes:,}; {_when(step, method)} {most:,} bytes are alive in it:",
                    *listed,
                    *more,
                    f"  what to do: {_advice(most <= memory.nbytes, planner, hierarchy)}",
                ]
            )
        )


def _peak(lifetimes: Sequence[Lifetime]) -> tuple[int, int]:
    """The first step at which the most bytes are alive, and how many."""
    steps = sorted({lifetime.first for lifetime in lifetimes})
    alive = {
        step: sum(lifetime.nbytes for lifetime in lifetimes if lifetime.first <= step <= lifetime.last)
        for step in steps
    }
    step = max(steps, key=lambda step: (alive[step], -step))
    return step, alive[step]


def _line(method: EmittedMethod, lifetime: Lifetime) -> str:
    """`1,024 bytes  relu (net.py:7, in forward: …)`; copies that emission has made have no node."""
    nodes = [node for (node, _), index in method.node_values.items() if index == lifetime.id and part_of(node) is None]
    node = next((node for node in nodes if memory_use(node) is MemoryUse.WHOLE), next(iter(nodes), None))
    info = getattr(method.builder.table.values[lifetime.id], "extra_tensor_info", None)
    name = (info.fully_qualified_name if info else None) or (node.name if node is not None else "a copy")
    where = user_location(node) if node is not None else None
    return f"    {lifetime.nbytes:>13,} bytes  {name}" + (f" ({where})" if where else "")


def _when(step: int, method: EmittedMethod) -> str:
    if step < 0:
        return "before the first instruction"
    return f"at instruction {step} of {len(method.builder.instructions)}"


def _advice(could_fit: bool, planner: str, hierarchy: MemoryHierarchy) -> str:
    if could_fit and planner != "search":
        return f"memory_planner='search' may find a plan that fits, where {planner!r} found none"
    advice = "make these tensors smaller, or alive for a shorter time; leave inputs and outputs to the caller"
    advice += " (alloc_graph_input=False, alloc_graph_output=False)"
    if any(memory.nbytes is None for memory in hierarchy.memories) or len(hierarchy.memories) > 1:
        return advice + "; or place some in another memory"
    return advice + "; or add a memory to the hierarchy"
