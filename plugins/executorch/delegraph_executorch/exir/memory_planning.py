"""Specs of a graph -> places in memory: algorithms, and what they are written with (`exir/memory_planning.py`).

An algorithm is a function `(alignment, specs, graph_module, graph_signature, extra_padding) -> MemoryAlgoResult`; a
suite takes the best of several and writes it into the specs. `spec.mem_id`, where a pass has set it before, says in
which memory a tensor is to lie. Planners for new code work on lifetimes alone (`delegraph.interfaces.MemoryPlanner`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.export import ExportGraphSignature
from torch.fx import GraphModule

from delegraph.aot import is_delegate_call
from delegraph.errors import LoweringError
from delegraph_executorch.exir import memory
from delegraph_executorch.exir._planning_specs import (
    Verifier,
    _do_user_inputs_exist,
    _extend_storage_base_lifetimes,
    _is_inplace_node,
    _is_mutable_buffer,
    _is_out_var_node,
    alive_together,
    collect_specs_from_nodes,
    filter_nodes,
    get_graph_input_tensors,
    get_graph_output_tensors,
    get_node_tensor_specs,
    lifetime_of,
    update_all_tensors_lifetime,
    update_tensor_lifetime,
)
from delegraph_executorch.exir.schema import DeviceType, NonConstBufferDevice, TensorShapeDynamism
from delegraph_executorch.exir.tensor import TensorSpec

__all__ = [
    "AllocationSpec",
    "MemoryAlgoResult",
    "MemoryPlanningAlgorithmSuite",
    "SharedObject",
    "SpecAllocResult",
    "Verifier",
    "_do_user_inputs_exist",
    "_extend_storage_base_lifetimes",
    "_is_inplace_node",
    "_is_mutable_buffer",
    "_is_out_var_node",
    "apply_algo",
    "collect_specs_from_nodes",
    "filter_nodes",
    "get_graph_input_tensors",
    "get_graph_output_tensors",
    "get_node_tensor_specs",
    "greedy",
    "insert_calls_to_free",
    "materialize_buffer",
    "naive",
    "pick_shared_obj",
    "update_all_tensors_lifetime",
    "update_tensor_lifetime",
]

_CPU = (DeviceType.CPU, 0)

XNNPACK_PADDING = 64
"""Bytes behind each memory that XNNPACK's kernels may read (ExecuTorch `exir/memory_planning.py`)."""


# ---- algorithms ------------------------------------------------------------------------------------


@dataclass
class AllocationSpec:
    """A tensor's place in a shared object."""

    offset: int
    spec: TensorSpec


@dataclass
class SharedObject:
    """A stretch of a memory that tensors share, and from which node to which it is in use."""

    idx: int
    offset: int
    size: int
    first_used_index: int
    last_used_index: int
    allocations: list[AllocationSpec] = field(default_factory=list)


@dataclass
class SpecAllocResult:
    """A tensor's place as an algorithm has it."""

    mem_id: int
    mem_obj_id: int
    mem_offset: int


@dataclass
class MemoryAlgoResult:
    """What an algorithm decides: a place for each spec, and bytes by memory (0 is reserved)."""

    spec_dict: dict[TensorSpec, SpecAllocResult]
    bufsizes: list[int]


def materialize_buffer(shared_objects: list[SharedObject], input_total_size: int = 0) -> int:
    """Lay the objects of one memory out behind `input_total_size` bytes; the memory's size."""
    for shared in shared_objects:
        shared.offset = input_total_size
        input_total_size += shared.size
    return input_total_size


def pick_shared_obj(
    shared_objects: list[SharedObject], spec: TensorSpec, allow_overlapping_allocations: bool = True
) -> SharedObject:
    """An object with room for `spec`, or a new one, which is appended. Specs come in falling order of size.

    First one whose tensors are all dead while `spec` is alive; then, if allowed, one with room behind those that are
    not.
    """
    start, end = lifetime_of(spec)
    for behind in (False, True) if allow_overlapping_allocations else (False,):
        for shared in shared_objects:
            busy = [a for a in shared.allocations if alive_together(a.spec, spec)]
            offset = max((a.offset + a.spec.allocated_memory for a in busy), default=0)
            if bool(busy) == behind and offset + spec.allocated_memory <= shared.size:
                shared.allocations.append(AllocationSpec(offset, spec))
                shared.first_used_index = min(shared.first_used_index, start)
                shared.last_used_index = max(shared.last_used_index, end)
                return shared
    new = SharedObject(len(shared_objects), -1, spec.allocated_memory, start, end, [AllocationSpec(0, spec)])
    shared_objects.append(new)
    return new


def greedy(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: GraphModule,
    graph_signature: ExportGraphSignature | None = None,
    extra_padding: int = 0,
    *,
    allow_overlapping_allocations: bool = True,
) -> MemoryAlgoResult:
    """The largest first, each into the first shared object with room for it."""
    ordered = sorted(specs, key=lambda spec: spec.realign(alignment))[::-1]
    objects: dict[int, list[SharedObject]] = defaultdict(list)
    for spec in ordered:
        if spec.storage_base is None:
            pick_shared_obj(objects[spec.mem_id or 1], spec, allow_overlapping_allocations)
    sizes = _memories(objects, graph_module)
    places: dict[TensorSpec, SpecAllocResult] = {}
    for mem_id, shared_objects in objects.items():
        sizes[mem_id] = materialize_buffer(shared_objects, sizes[mem_id]) + extra_padding
        for shared in shared_objects:
            for one in shared.allocations:
                places[one.spec] = SpecAllocResult(mem_id, shared.idx, shared.offset + one.offset)
    return MemoryAlgoResult(_with_stored_inside(ordered, places), sizes)


def naive(
    alignment: int,
    specs: Iterable[TensorSpec],
    graph_module: GraphModule,
    graph_signature: ExportGraphSignature | None = None,
    extra_padding: int = 0,
) -> MemoryAlgoResult:
    """Every tensor in a place of its own, in order."""
    ordered = list(specs)
    sizes = _memories({spec.mem_id or 1: [] for spec in ordered}, graph_module)
    places: dict[TensorSpec, SpecAllocResult] = {}
    for spec in (spec for spec in ordered if spec.storage_base is None):
        mem_id = spec.mem_id or 1
        places[spec] = SpecAllocResult(mem_id, len(places), sizes[mem_id])
        sizes[mem_id] += spec.realign(alignment)
    padded = {place.mem_id for place in places.values()}
    bufsizes = [size + extra_padding * (mem_id in padded) for mem_id, size in enumerate(sizes)]
    return MemoryAlgoResult(_with_stored_inside(ordered, places), bufsizes)


def _memories(used: Iterable[int], graph_module: GraphModule) -> list[int]:
    """Bytes by memory that are taken before planning: those of the bodies of control flow, which run in between."""
    sizes = [0] * (max([1, *used]) + 1)
    taken = getattr(graph_module, "input_mem_buffer_sizes", [])
    return [taken[i] if 0 < i < len(taken) else size for i, size in enumerate(sizes)]


def _with_stored_inside(
    specs: Sequence[TensorSpec], places: dict[TensorSpec, SpecAllocResult]
) -> dict[TensorSpec, SpecAllocResult]:
    """`places`, and for what lies in another tensor's memory, as what is computed in place does, its place there."""
    for spec in specs:
        *inside, base = spec.storage_chain()
        offset = sum(each.storage_base_offset for each in inside)
        if base not in places:
            raise LoweringError(f"{spec} lies in the memory of a tensor that has no place of its own")
        if offset < 0 or offset + spec.allocated_memory > base.allocated_memory or offset % spec.alignment:
            raise LoweringError(
                f"{spec} is to lie {offset} bytes into a tensor of {base.allocated_memory}: storage_base_offset has to"
                f" be a multiple of {spec.alignment} that leaves room for {spec.allocated_memory}"
            )
        places[spec] = replace(places[base], mem_offset=places[base].mem_offset + offset)
    return places


def _written(found: MemoryAlgoResult) -> list[int]:
    """Write the places that an algorithm decided on into the specs; bytes by memory."""
    for spec, place in found.spec_dict.items():
        spec.mem_id, spec.mem_obj_id, spec.mem_offset = place.mem_id, place.mem_obj_id, place.mem_offset
    return found.bufsizes


class MemoryPlanningAlgorithmSuite:
    """Runs several algorithms and writes what takes the fewest bytes into the specs; gives the sizes."""

    def __init__(self, algo_list: list[Callable[..., MemoryAlgoResult]] | None = None) -> None:
        self.algo_list: list[Callable[..., MemoryAlgoResult]] = algo_list or [greedy]

    def __call__(
        self,
        alignment: int,
        specs: Iterable[TensorSpec],
        graph_module: GraphModule,
        graph_signature: ExportGraphSignature | None = None,
        extra_padding: int = 0,
    ) -> list[int]:
        """Plan. Raises `LoweringError` where the algorithms disagree on the number of memories."""
        specs = list(specs)
        results = [algo(alignment, specs, graph_module, graph_signature, extra_padding) for algo in self.algo_list]
        if len({len(result.bufsizes) for result in results}) != 1:
            raise LoweringError("memory planning algorithms of one suite have to plan for the same number of memories")
        best = min(results, key=lambda result: sum(result.bufsizes))
        return _written(best)


# ---- a graph and its bodies ------------------------------------------------------------------------


def apply_algo(
    algo: Callable[..., Any],
    graph_module: GraphModule,
    alignment: int,
    graph_signature: ExportGraphSignature | None = None,
    alloc_graph_input: bool = True,
    alloc_graph_output: bool = True,
    alloc_mutable_buffers: bool = True,
    enable_non_cpu_memory_planning: bool = False,
) -> list[int]:
    """Plan a graph, the bodies of its control flow first, each device by itself; bytes by memory.

    They are left in `graph_module.meta["non_const_buffer_sizes"]`, and which memories are not the CPU's in
    `meta["non_const_buffer_device"]`.
    """
    update_all_tensors_lifetime(graph_module, graph_signature)
    specs = list(
        collect_specs_from_nodes(
            graph_module.graph.nodes,
            graph_signature,
            do_assertion=False,
            ignore_graph_input=not alloc_graph_input,
            ignore_graph_output=not alloc_graph_output,
            ignore_mutable_buffers=not alloc_mutable_buffers,
        )
    )
    bodies = _plan_bodies(algo, graph_module, alignment, graph_signature)
    padding = XNNPACK_PADDING if _contains_xnnpack_delegate(graph_module) else 0
    sizes, devices = [0], [_CPU]
    for device, own in _by_device(specs, enable_non_cpu_memory_planning).items():
        graph_module.input_mem_buffer_sizes = bodies if device == _CPU else []  # type: ignore[assignment]
        found = algo(alignment, own, graph_module, graph_signature, padding)
        found = _written(found) if isinstance(found, MemoryAlgoResult) else found
        for spec in own:
            if spec.mem_id is not None:
                spec.mem_id += len(sizes) - 1
        sizes += found[1:]
        devices += [device] * len(found[1:])
    if len(sizes) == 1:
        sizes.append(max(bodies[1:2], default=0))
    insert_calls_to_free(graph_module, set(specs))
    graph_module.meta["non_const_buffer_sizes"] = sizes
    others = [NonConstBufferDevice(i, *device) for i, device in enumerate(devices) if device != _CPU]
    if others:
        graph_module.meta["non_const_buffer_device"] = others
    return sizes


def _by_device(
    specs: list[TensorSpec], enable_non_cpu_memory_planning: bool
) -> dict[tuple[DeviceType, int], list[TensorSpec]]:
    """Specs by device, the CPU first. Raises NotImplementedError where a pass has chosen memories besides."""
    if not enable_non_cpu_memory_planning:
        return {_CPU: specs}
    found: dict[tuple[DeviceType, int], list[TensorSpec]] = defaultdict(list)
    for spec in specs:
        found[spec.device, spec.device_index].append(spec)
    if any(device[0] != DeviceType.CPU for device in found) and any(spec.mem_id is not None for spec in specs):
        raise NotImplementedError(
            "spec.mem_id is set on some tensors, and others are on a device: both choose memories by number; set"
            " enable_non_cpu_memory_planning=False, or leave mem_id alone"
        )
    return dict(sorted(found.items(), key=lambda item: (item[0] != _CPU, item[0])))


def _plan_bodies(
    algo: Callable[..., Any], graph_module: GraphModule, alignment: int, graph_signature: ExportGraphSignature | None
) -> list[int]:
    """Plan the bodies of control flow, which never run at once: as many bytes as the largest takes, by memory."""
    sizes: list[int] = []
    for body, takes_elements in _bodies(graph_module):
        found = apply_algo(algo, body, alignment, graph_signature, takes_elements, True)
        sizes += [0] * (len(found) - len(sizes))
        sizes = [max(size, found[i]) if i < len(found) else size for i, size in enumerate(sizes)]
    return sizes


def _bodies(graph_module: GraphModule) -> Iterator[tuple[GraphModule, bool]]:
    """Bodies, and whether they take elements of tensors (`map`, `scan`), which need memory of their own."""
    kinds = {"cond": ((1, 2), False), "while_loop": ((0, 1), False), "map_impl": ((0,), True), "scan": ((0,), True)}
    for node in graph_module.graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator) and str(node.target) in kinds:
            positions, takes_elements = kinds[str(node.target)]
            for position in positions:
                yield graph_module.get_submodule(str(node.args[position].target)), takes_elements  # type: ignore[misc]


def _contains_xnnpack_delegate(graph_module: GraphModule) -> bool:
    calls = [node for node in graph_module.graph.nodes if is_delegate_call(node)]
    modules: list[Any] = [graph_module.get_submodule(str(call.args[0].target)) for call in calls]
    return any("xnnpack" in module.backend_id.lower() for module in modules)


def insert_calls_to_free(graph_module: GraphModule, allspecs: set[TensorSpec]) -> None:
    """Release, after their last use, tensors of unknown size that are neither inputs nor outputs."""
    nodes = list(graph_module.graph.nodes)
    kept = get_graph_input_tensors(nodes) | get_graph_output_tensors(nodes)
    unbound = [s for s in allspecs if s.shape_dynamism == TensorShapeDynamism.DYNAMIC_UNBOUND and s not in kept]
    for spec in unbound:
        with graph_module.graph.inserting_after(nodes[lifetime_of(spec)[1]]):
            graph_module.graph.call_function(memory.free, (spec,))  # type: ignore[arg-type]
    graph_module.recompile()
