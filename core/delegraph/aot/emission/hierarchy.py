"""Lifetimes and a board's memories -> lifetimes with the memory each goes to, by hand or by policy.

Fastest first: the fastest memory takes, of the tensors that no hand has placed, those that are used most for the room
they take, as long as what is alive together fits; what ends behind its size once planned spills to the next one.

    uses for each step of life     room in `sram` (64)               memory
    a 16    1                      a                                 sram
    b 48    0.8                    a, b                              sram
    c 32    0.5                    alive together with a and b       dram
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from delegraph.aot.emission.method import EmittedMethod
from delegraph.aot.graph.source_location import user_location
from delegraph.errors import LoweringError
from delegraph.interfaces.memory_hierarchy import Memory, MemoryHierarchy
from delegraph.interfaces.memory_planner import Lifetime, MemoryPlanner, Plan
from delegraph.program.devices import Device
from delegraph.program.walk import operands, tensor_indices

__all__ = ["MethodPlacement", "aligned_planner", "check_patterns", "place_tensors"]


@dataclass(frozen=True, slots=True)
class MethodPlacement:
    """Where a method's tensors go: the memory of those that are placed by hand, and each one's device and uses."""

    by_hand: Mapping[int, int]
    devices: Mapping[int, Device]
    uses: Mapping[int, int]

    @classmethod
    def of(cls, method: EmittedMethod, hierarchy: MemoryHierarchy, devices: Mapping[int, Device]) -> MethodPlacement:
        """Raises `LoweringError` for a tensor that a hand puts into a memory that is not there, or not its device's."""
        table = method.builder.table
        uses = Counter(
            table.root(index)
            for instruction in method.builder.instructions
            for index in tensor_indices(operands(instruction), table.values)
        )
        return cls(dict(_by_hand(method, hierarchy, devices)), devices, uses)


def place_tensors(
    lifetimes: Sequence[Lifetime], placement: MethodPlacement, hierarchy: MemoryHierarchy, planner: MemoryPlanner
) -> list[Lifetime]:
    """The lifetimes, each with the id of its memory. `planner` says what fits."""
    chosen = dict(placement.by_hand)
    for device in sorted({placement.devices[lifetime.id] for lifetime in lifetimes}):
        ids = [i for i, memory in enumerate(hierarchy.memories, 1) if memory.device == device]
        here = [lifetime for lifetime in lifetimes if placement.devices[lifetime.id] == device]
        if not ids:
            continue
        if hierarchy.policy == "by_hand":
            rest = ids[0]
        else:
            ids.sort(key=lambda i: -hierarchy.memories[i - 1].speed)
            rest = ids[-1]
            for memory_id in ids[:-1]:
                chosen |= _taken(here, chosen, memory_id, hierarchy.memories[memory_id - 1], placement.uses, planner)
        chosen |= {lifetime.id: rest for lifetime in here if lifetime.id not in chosen}
    return [replace(lifetime, memory_id=chosen.get(lifetime.id, lifetime.memory_id)) for lifetime in lifetimes]


def _taken(
    lifetimes: Sequence[Lifetime],
    chosen: Mapping[int, int],
    memory_id: int,
    memory: Memory,
    uses: Mapping[int, int],
    planner: MemoryPlanner,
) -> dict[int, int]:
    """The tensors without a place that `memory` takes, with its id."""
    placed = [tensor for tensor in lifetimes if chosen.get(tensor.id) == memory_id]
    free = [tensor for tensor in lifetimes if tensor.id not in chosen]
    free.sort(key=lambda tensor: (-uses.get(tensor.id, 0) / (tensor.last - tensor.first + 1), tensor.nbytes, tensor.id))
    if memory.nbytes is None:
        return dict.fromkeys((tensor.id for tensor in free), memory_id)
    alive: dict[int, int] = defaultdict(int)
    for lifetime in placed:
        _add(alive, lifetime, memory.alignment)
    taken: list[Lifetime] = []
    for lifetime in free:
        most = max(alive[step] for step in range(lifetime.first, lifetime.last + 1))
        if most + _aligned(lifetime.nbytes, memory.alignment) <= memory.nbytes:
            taken.append(lifetime)
            _add(alive, lifetime, memory.alignment)
    return dict.fromkeys((tensor.id for tensor in _that_fit(placed, taken, memory, planner)), memory_id)


def _that_fit(
    placed: Sequence[Lifetime], taken: Sequence[Lifetime], memory: Memory, planner: MemoryPlanner
) -> Sequence[Lifetime]:
    """`taken` without the tensors that the planner puts behind the end of `memory`."""
    assert memory.nbytes is not None
    while taken:
        both = [replace(lifetime, memory_id=1) for lifetime in (*placed, *taken)]
        plan = planner(both, memory.alignment)
        if plan.buffer_sizes[1] <= memory.nbytes:
            break
        ends = {lifetime.id: offset + lifetime.nbytes for lifetime, offset in zip(both, plan.offsets, strict=True)}
        fitting = [lifetime for lifetime in taken if ends[lifetime.id] <= memory.nbytes]
        # where all taken ones fit, a placed one lies behind the end: the least used makes room
        taken = fitting if len(fitting) < len(taken) else taken[:-1]
    return taken


def aligned_planner(planner: MemoryPlanner, hierarchy: MemoryHierarchy) -> MemoryPlanner:
    """`planner`, which lays out each memory at the alignment that it asks for."""

    def plan(lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
        offsets = [0] * len(lifetimes)
        sizes = [0] * (max((lifetime.memory_id for lifetime in lifetimes), default=1) + 1)
        lower_bound = 0
        for memory_id in sorted({lifetime.memory_id for lifetime in lifetimes}):
            indices = [i for i, lifetime in enumerate(lifetimes) if lifetime.memory_id == memory_id]
            own = hierarchy.memories[memory_id - 1].alignment if memory_id <= len(hierarchy.memories) else 1
            part = planner([lifetimes[i] for i in indices], max(alignment, own))
            sizes[memory_id] = part.buffer_sizes[memory_id]
            lower_bound += part.lower_bound
            for i, offset in zip(indices, part.offsets, strict=True):
                offsets[i] = offset
        return Plan(tuple(offsets), tuple(sizes), lower_bound)

    return plan


# ---- by hand ---------------------------------------------------------------------------------------


def check_patterns(methods: Iterable[EmittedMethod], hierarchy: MemoryHierarchy) -> None:
    """Raise `LoweringError` for a pattern in `place` that is the name of nothing in any method."""
    names = {name for method in methods for name, _ in _names(method)}
    for pattern in hierarchy.place:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise LoweringError(
                f"the memory hierarchy places {pattern!r}, and no node, input or buffer has such a name; there are"
                f" {', '.join(sorted(names)[:8])} …"
            )


def _names(method: EmittedMethod) -> Iterable[tuple[str, int]]:
    """Names of planned tensors: of nodes and inputs, and the qualified ones of buffers."""
    table = method.builder.table
    yield from ((node.name, index) for (node, _), index in method.node_values.items() if index in table.planned)
    for index in table.planned:
        info = getattr(table.values[index], "extra_tensor_info", None)
        if info is not None and info.fully_qualified_name:
            yield info.fully_qualified_name, index


def _by_hand(
    method: EmittedMethod, hierarchy: MemoryHierarchy, devices: Mapping[int, Device]
) -> Iterable[tuple[int, int]]:
    """(value, memory) of the tensors that patterns place, by the first that matches, then of those that nodes'
    `meta["memory_id"]` place."""
    for name, index in _names(method):
        memory = next((m for pattern, m in hierarchy.place.items() if fnmatchcase(name, pattern)), None)
        if memory is not None and index in devices:
            memory_id = hierarchy.memory_id(memory)
            _check_device(name, devices[index], hierarchy, memory_id)
            yield index, memory_id
    for (node, position), index in method.node_values.items():
        ids = node.meta.get("memory_id")
        if ids is None or index not in devices:
            continue
        memory_id = int(ids[position] if isinstance(ids, (tuple, list)) else ids)
        if memory_id > len(hierarchy.memories):
            raise LoweringError(
                f"meta['memory_id'] is {memory_id}, and the memory hierarchy has {len(hierarchy.memories)} memories",
                node=node.name,
                location=user_location(node),
            )
        _check_device(node.name, devices[index], hierarchy, memory_id)
        yield index, memory_id


def _check_device(name: str, device: Device, hierarchy: MemoryHierarchy, memory_id: int) -> None:
    memory = hierarchy.memories[memory_id - 1]
    if memory.device != device:
        raise LoweringError(
            f"{name!r} lies on {device} and is placed in memory {memory.name!r}, which is on {memory.device}"
        )


def _add(alive: dict[int, int], lifetime: Lifetime, alignment: int) -> None:
    for step in range(lifetime.first, lifetime.last + 1):
        alive[step] += _aligned(lifetime.nbytes, alignment)


def _aligned(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment
