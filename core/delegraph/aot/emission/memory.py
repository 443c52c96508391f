"""EmittedMethod -> places in memory: lifetimes from the instruction list, a planner's plan, and its lower bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from delegraph.aot.emission.hierarchy import MethodPlacement, aligned_planner, place_tensors
from delegraph.aot.emission.memory_limit import check_limits
from delegraph.aot.emission.method import EmittedMethod
from delegraph.aot.emission.planners.one_memory import most_alive_together
from delegraph.aot.emission.values import MethodValues
from delegraph.aot.memory_planning import MemoryPlanningPass, MethodMemory, MethodPlan
from delegraph.errors import LoweringError, PluginError, foreign_code
from delegraph.interfaces.memory_hierarchy import MemoryHierarchy
from delegraph.interfaces.memory_planner import Lifetime, MemoryPlanner, Plan, PlanError, check_places, check_plan
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.devices import CPU, Device, memory_devices
from delegraph.program.memory.live_ranges import BEFORE, live_ranges
from delegraph.program.schema import AllocationDetails, NonConstBufferDevice, Tensor, Value

__all__ = ["MemoryReport", "SharedMemory", "lifetimes", "load_planner", "plan_memory", "shared_memory"]


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes per memory id (0 is reserved), and the total that no plan of these lifetimes can undercut.

    `overlap_bytes`: so many more are in use at one time because delegates are at work together, than one after the
    other.
    """

    buffer_sizes: tuple[int, ...]
    lower_bound: int
    overlap_bytes: int = 0

    @property
    def planned_bytes(self) -> int:
        """Bytes in all memories."""
        return sum(self.buffer_sizes)


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Where the states that all methods share lie: their memory id, offsets by name, and bytes in all."""

    memory_id: int
    offsets: Mapping[str, int]
    nbytes: int


def plan_memory(
    method: EmittedMethod, planning: MemoryPlanningPass, planner: MemoryPlanner, shared: SharedMemory
) -> tuple[tuple[Value, ...], tuple[NonConstBufferDevice, ...], MemoryReport]:
    """The method's values, every planned tensor in its place, and the memories that are not the CPU's."""
    table, hierarchy = method.builder.table, planning.hierarchy
    memories = _device_memories(table, shared, hierarchy)
    asked = tuple(lifetimes(method, memories))
    overlap = most_alive_together(asked, planning.alignment) if method.in_order else 0
    overlap -= most_alive_together(method.in_order, planning.alignment)
    # which memory comes before where in it: a planner packs each memory by itself
    if hierarchy is not None:
        planner = aligned_planner(planner, hierarchy)
        lying = {index: planned.device for index, planned in table.planned.items()}
        asked = tuple(place_tensors(asked, MethodPlacement.of(method, hierarchy, lying), hierarchy, planner))
    devices = tuple(_devices(asked, table))
    answer = planning.plan(MethodMemory(method.name, method.program, asked, method.node_values, devices), planner)
    _check_answer(method.name, asked, answer, planning)
    _check_devices(method.name, table, answer, shared)
    plan = answer.plan
    if hierarchy is not None:
        name = planning.planner if isinstance(planning.planner, str) else "the planner"
        check_limits(method, answer.lifetimes, plan, hierarchy, name)
    places = {
        lifetime.id: AllocationDetails(lifetime.memory_id, offset)
        for lifetime, offset in zip(answer.lifetimes, plan.offsets, strict=True)
    }
    # behind the planner's back: a state that methods share has one place, which no method's plan may move
    names = {i: p.shared_name for i, p in table.planned.items() if p.shared_name is not None}
    places |= {i: AllocationDetails(shared.memory_id, shared.offsets[name]) for i, name in names.items()}
    # 0 is reserved, and 1 is there though it be empty
    sizes = list(plan.buffer_sizes) + [0] * (2 - len(plan.buffer_sizes))
    if names:
        sizes += [0] * (shared.memory_id + 1 - len(sizes))
        sizes[shared.memory_id] = shared.nbytes
    lower_bound = plan.lower_bound + (shared.nbytes if names else 0)
    return tuple(_placed(table, places)), answer.devices, MemoryReport(tuple(sizes), lower_bound, overlap)


def shared_memory(methods: Sequence[EmittedMethod], alignment: int, described: int = 1) -> SharedMemory:
    """One place for each state that is shared by name, in a memory of its own, the same in all methods, behind the
    `described` memories that a hierarchy has."""
    sizes: dict[str, int] = {}
    used = {described}
    for method in methods:
        for planned in method.builder.table.planned.values():
            if planned.shared_name is None:
                used.add(planned.memory_id)
            else:
                known = sizes.setdefault(planned.shared_name, planned.nbytes)
                _check_shared(planned.shared_name, known, planned.nbytes)
    offsets: dict[str, int] = {}
    end = 0
    for name in sorted(sizes):  # in an order that does not depend on which method is lowered first
        offsets[name] = end
        end += -(-sizes[name] // alignment) * alignment
    return SharedMemory(max(used) + 1, offsets, end)


def load_planner(planner: str | MemoryPlanner, registry: PluginRegistry) -> MemoryPlanner:
    """The planner of that name in `registry` or the function itself; whatever goes wrong in it is a `LoweringError`
    that names it. Raises `PluginError`."""
    name = planner if isinstance(planner, str) else getattr(planner, "__name__", type(planner).__name__)
    plan: MemoryPlanner = registry.load("delegraph.memory_planners", planner) if isinstance(planner, str) else planner

    def guarded(lifetimes: Sequence[Lifetime], alignment: int) -> Plan:
        with foreign_code(f"memory planner {name}: it raised"):
            result: object = plan(lifetimes, alignment)
        if not isinstance(result, Plan):
            raise LoweringError(f"memory planner {name}: it returned {type(result).__name__}, not a Plan")
        return result

    return guarded


# ---- lifetimes -------------------------------------------------------------------------------------


def lifetimes(method: EmittedMethod, memories: Mapping[Device, int] = MappingProxyType({})) -> list[Lifetime]:
    """Lifetimes: from the instruction that first writes a planned tensor to the last that uses it, or a view of it;
    where that submits a delegate, to the last that begins before the delegate has ended.

    States are alive always; for the rest see `live_ranges`. `memories` are those of devices.
    """
    table, instructions = method.builder.table, method.builder.instructions
    ranges = live_ranges(instructions, table.values, method.inputs, method.outputs, table.root, method.at_work)
    always = (BEFORE, len(instructions))
    # a state is alive between runs as well, and no instruction says so
    ranges |= {index: always for index, planned in table.planned.items() if planned.always_alive}
    return [
        Lifetime(index, planned.nbytes, *ranges[index], memories.get(planned.device, planned.memory_id))
        for index, planned in table.planned.items()
        if index in ranges and planned.shared_name is None
    ]


# ---- places ----------------------------------------------------------------------------------------


def _device_memories(table: MethodValues, shared: SharedMemory, hierarchy: MemoryHierarchy | None) -> dict[Device, int]:
    """A memory for each device but the CPU, behind the CPU's own and those that are described."""
    planned = table.planned.values()
    described = len(hierarchy.memories) if hierarchy is not None else 1
    own = (tensor.memory_id for tensor in planned)
    last = max([described, *own, *(shared.memory_id for tensor in planned if tensor.shared_name)])
    devices = {tensor.device for tensor in planned} - {CPU}
    return {device: last + position for position, device in enumerate(sorted(devices), 1)}


def _devices(lifetimes: Sequence[Lifetime], table: MethodValues) -> Iterator[NonConstBufferDevice]:
    """The memories that are not the CPU's."""
    devices = {
        lifetime.memory_id: table.planned[lifetime.id].device
        for lifetime in lifetimes
        if table.planned[lifetime.id].device != CPU
    }
    yield from (
        NonConstBufferDevice(memory_id, devices[memory_id].type, devices[memory_id].index)
        for memory_id in sorted(devices)
    )


def _placed(table: MethodValues, places: Mapping[int, AllocationDetails]) -> Iterator[Value]:
    for index, value in enumerate(table.values):
        place = places.get(table.root(index))  # views lie in another's memory, and planners never hear of them
        if place is not None and isinstance(value, Tensor):
            place = replace(place, memory_offset=place.memory_offset + table.offset(index))
            value = replace(value, allocation_info=place)
        yield value


def _check_answer(method: str, asked: Sequence[Lifetime], answer: MethodPlan, planning: MemoryPlanningPass) -> None:
    """Raise `PluginError` for an unsound plan: a planner may be anybody's, and its mistakes would corrupt memory."""
    check = check_places if planning.allow_lifetime_and_storage_overlap else check_plan
    try:
        if [lifetime.id for lifetime in answer.lifetimes] != [lifetime.id for lifetime in asked]:
            raise PlanError("it has other tensors than were asked for, or another order of them")
        check(answer.lifetimes, answer.plan, planning.alignment)
    except PlanError as error:
        raise PluginError(
            f"method {method!r}: the memory planner's plan is unsound: {error}; mend the planner, or use 'greedy'"
        ) from error


def _check_devices(method: str, table: MethodValues, answer: MethodPlan, shared: SharedMemory) -> None:
    """Raise `PluginError` unless tensors on a device lie in its memory, and no others do."""
    devices = memory_devices(answer.devices)
    places = {lifetime.id: lifetime.memory_id for lifetime in answer.lifetimes}
    places |= {index: shared.memory_id for index, planned in table.planned.items() if planned.shared_name is not None}
    for index, memory_id in places.items():
        device, actual = table.planned[index].device, devices.get(memory_id, CPU)
        if actual != device:
            raise PluginError(
                f"method {method!r}: the memory planning pass puts value {index}, which lies on {device}, into memory"
                f" {memory_id}, which is on {actual}; keep the memories of devices apart, as MethodMemory.devices says"
            )


def _check_shared(name: str, known: int, nbytes: int) -> None:
    if known != nbytes:
        raise LoweringError(
            f"buffer {name!r} has {known:,} bytes in one method and {nbytes:,} in another, so they cannot share it;"
            " set share_mutable_buffers=False or give them one shape"
        )
