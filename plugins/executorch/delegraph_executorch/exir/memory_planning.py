"""Specs of a graph -> places in memory: algorithms, and what they are written with (`exir/memory_planning.py`).

An algorithm is a function `(alignment, specs, graph_module, graph_signature, extra_padding) -> MemoryAlgoResult`; a
suite takes the best of several and writes it into the specs. `spec.mem_id`, where a pass has set it before, says in
which memory a tensor is to lie. Planners for new code work on lifetimes alone (`delegraph.interfaces.MemoryPlanner`).
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportGraphSignature
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from delegraph.aot import is_delegate_call
from delegraph.errors import LoweringError
from delegraph_executorch.exir import memory
from delegraph_executorch.exir.schema import DeviceType, NonConstBufferDevice, TensorShapeDynamism
from delegraph_executorch.exir.tensor import TensorSpec

__all__ = [
    "AllocationSpec",
    "MemoryAlgoResult",
    "MemoryPlanningAlgorithmSuite",
    "SharedObject",
    "SpecAllocResult",
    "Verifier",
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


# ---- what nodes are --------------------------------------------------------------------------------


def _operator(node: Node) -> OpOverload | None:
    return node.target if isinstance(node.target, OpOverload) else None


def _is_out_var_node(node: Node) -> bool:
    """Whether `node` writes its results into tensors that it is given."""
    op = _operator(node)
    return op is not None and any(argument.is_out for argument in op._schema.arguments)


def _is_inplace_node(node: Node) -> bool:
    """Whether the results of `node` are arguments that it changes."""
    op = _operator(node)
    return op is not None and not _is_out_var_node(node) and bool(_written_arguments(op))


def _written_arguments(op: OpOverload) -> dict[int, int]:
    """Result -> the argument that it is, changed."""
    schema = op._schema
    written: dict[int, int] = {}
    for result, returned in enumerate(schema.returns):
        if returned.alias_info is not None and returned.alias_info.is_write:
            same = [
                position
                for position, argument in enumerate(schema.arguments)
                if argument.alias_info is not None and argument.alias_info.before_set & returned.alias_info.before_set
            ]
            if len(same) == 1:
                written[result] = same[0]
    return written


def _is_mutable_buffer(node: Node, graph_signature: ExportGraphSignature | None = None) -> bool:
    """Whether `node` is the placeholder of a buffer that the program changes."""
    if graph_signature is None or node.op != "placeholder":
        return False
    name = graph_signature.inputs_to_buffers.get(str(node.target))
    return name is not None and name in graph_signature.buffers_to_mutate.values()


def _do_user_inputs_exist(graph_signature: ExportGraphSignature | None) -> bool:
    """Whether the caller gives a tensor: numbers, strings and truth values have no memory."""
    if graph_signature is None:
        return False
    inputs = [spec.arg for spec in graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    return any(
        not (isinstance(one, ConstantArgument) and isinstance(one.value, (int, float, bool, str))) for one in inputs
    )


def filter_nodes(inputs: Iterable[Any]) -> list[Node]:
    """The nodes among `inputs`, those in lists and dicts too."""
    return [leaf for leaf in pytree.tree_leaves(list(inputs)) if isinstance(leaf, Node)]


def get_node_tensor_specs(node: Node) -> list[TensorSpec]:
    """The specs of the results of `node`; a view has those of what it shows."""
    source = node.args[0] if node.target is memory.view else node
    specs = source.meta.get("spec") if isinstance(source, Node) else None
    given = specs if isinstance(specs, (list, tuple)) else [specs]
    return [spec for spec in given if isinstance(spec, TensorSpec)]


def get_graph_input_tensors(
    nodes: Iterable[Node], graph_signature: ExportGraphSignature | None = None
) -> set[TensorSpec]:
    """The specs of placeholders, but for buffers that the program changes."""
    inputs = [node for node in nodes if node.op == "placeholder" and not _is_mutable_buffer(node, graph_signature)]
    return {spec for node in inputs for spec in get_node_tensor_specs(node)}


def get_graph_output_tensors(nodes: Iterable[Node]) -> set[TensorSpec]:
    """The specs of what the graph returns."""
    return {spec for node in nodes if node.op == "output" for spec in get_node_tensor_specs(node)}


def _mutable_buffer_specs(nodes: Iterable[Node], graph_signature: ExportGraphSignature | None) -> set[TensorSpec]:
    return {spec for node in nodes if _is_mutable_buffer(node, graph_signature) for spec in get_node_tensor_specs(node)}


def _alias_inplace_result_specs(node: Node) -> None:
    """Give results that are changed arguments those arguments' specs: they are one tensor in one place."""
    op = _operator(node)
    specs = node.meta.get("spec")
    if op is None or specs is None:
        return
    results = list(specs) if isinstance(specs, (list, tuple)) else [specs]
    for result, position in _written_arguments(op).items():
        name = op._schema.arguments[position].name
        argument = node.args[position] if position < len(node.args) else node.kwargs.get(name)
        spec = argument.meta.get("spec") if isinstance(argument, Node) else None
        if isinstance(spec, TensorSpec) and result < len(results):
            results[result] = spec
    node.meta["spec"] = type(specs)(results) if isinstance(specs, (list, tuple)) else results[0]


def collect_specs_from_nodes(
    nodes: Iterable[Node],
    graph_signature: ExportGraphSignature | None = None,
    ignore_graph_input: bool = False,
    ignore_graph_output: bool = False,
    ignore_mutable_buffers: bool = False,
    ignore_const: bool = True,
    ignore_out_var_node: bool = True,
    dedup: bool = True,
    do_assertion: bool = True,
    ignore_dynamic_unbound_tensor: bool = True,
) -> Iterator[TensorSpec]:
    """The specs of `nodes`, each once if `dedup`, without those that an argument says to leave out.

    With `do_assertion`, a call other than of memory, control flow or a delegate raises `LoweringError`.
    """
    nodes = list(nodes)
    ignored: set[TensorSpec] = set()
    if ignore_graph_input:
        ignored |= get_graph_input_tensors(nodes, graph_signature)
    if ignore_graph_output:
        ignored |= get_graph_output_tensors(nodes)
    if ignore_mutable_buffers:
        ignored |= _mutable_buffer_specs(nodes, graph_signature)
    seen: set[TensorSpec] = set()
    for node in nodes:
        if node.op == "get_attr" or (ignore_out_var_node and _is_out_var_node(node)):
            continue
        if _is_inplace_node(node):
            _alias_inplace_result_specs(node)
            continue
        specs = get_node_tensor_specs(node)
        if do_assertion and specs:
            _check_is_memory(node)
        for spec in specs:
            unbound = spec.shape_dynamism == TensorShapeDynamism.DYNAMIC_UNBOUND
            constant = spec.const and not node.meta.get("weight_has_gradient", False)
            if spec in ignored or (ignore_dynamic_unbound_tensor and unbound) or (ignore_const and constant):
                continue
            if dedup and spec in seen:
                continue
            seen.add(spec)
            yield spec


def _check_is_memory(node: Node) -> None:
    higher_order = isinstance(node.target, torch._ops.HigherOrderOperator)
    known = (memory.alloc, memory.view, operator.getitem)
    if node.op not in ("placeholder", "output") and node.target not in known and not higher_order:
        raise LoweringError(
            f"{node.name} calls {node.target}, which allocates nothing: run ToOutVarPass before planning"
        )


# ---- lifetimes -------------------------------------------------------------------------------------


def update_tensor_lifetime(
    node: Node, spec: TensorSpec, node_idx: int, max_node_idx: int, gs: ExportGraphSignature | None = None
) -> None:
    """Make `spec` alive at `node`, the `node_idx`-th: inputs from the start, buffers that are changed to the end."""
    start, end = spec.lifetime
    first = 0 if node.op == "placeholder" else node_idx
    last = max_node_idx if _is_mutable_buffer(node, gs) else node_idx
    spec.lifetime = [first if start is None else min(start, first), last if end is None else max(end, last)]


def update_all_tensors_lifetime(
    graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None
) -> set[TensorSpec]:
    """Set the lifetimes of all specs of a graph, in indices of its nodes; the specs."""
    specs: set[TensorSpec] = set()
    nodes = list(graph_module.graph.nodes)
    for index, node in enumerate(nodes):
        used = filter_nodes(chain([node], node.args, node.kwargs.values()))
        for spec in collect_specs_from_nodes(
            used,
            graph_signature,
            ignore_const=False,
            ignore_out_var_node=False,
            dedup=False,
            do_assertion=False,
            ignore_dynamic_unbound_tensor=False,
        ):
            update_tensor_lifetime(node, spec, index, len(nodes) - 1, graph_signature)
            specs.add(spec)
    return specs


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


def _lifetime(spec: TensorSpec) -> tuple[int, int]:
    start, end = spec.lifetime
    if start is None or end is None:
        raise LoweringError(f"{spec} has no lifetime yet: run update_all_tensors_lifetime before")
    return start, end


def _alive_together(one: TensorSpec, other: TensorSpec) -> bool:
    return Verifier.has_overlap(list(_lifetime(one)), list(_lifetime(other)))


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
    start, end = _lifetime(spec)
    for behind in (False, True) if allow_overlapping_allocations else (False,):
        for shared in shared_objects:
            busy = [a for a in shared.allocations if _alive_together(a.spec, spec)]
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
        if spec.inplace_base is None:
            pick_shared_obj(objects[spec.mem_id or 1], spec, allow_overlapping_allocations)
    sizes = _memories(objects, graph_module)
    places: dict[TensorSpec, SpecAllocResult] = {}
    for mem_id, shared_objects in objects.items():
        sizes[mem_id] = materialize_buffer(shared_objects, sizes[mem_id]) + extra_padding
        for shared in shared_objects:
            for one in shared.allocations:
                places[one.spec] = SpecAllocResult(mem_id, shared.idx, shared.offset + one.offset)
    return MemoryAlgoResult(_with_inplace(ordered, places), sizes)


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
    for spec in (one for one in ordered if one.inplace_base is None):
        mem_id = spec.mem_id or 1
        places[spec] = SpecAllocResult(mem_id, len(places), sizes[mem_id])
        sizes[mem_id] += spec.realign(alignment)
    padded = {place.mem_id for place in places.values()}
    bufsizes = [size + extra_padding * (mem_id in padded) for mem_id, size in enumerate(sizes)]
    return MemoryAlgoResult(_with_inplace(ordered, places), bufsizes)


def _memories(used: Iterable[int], graph_module: GraphModule) -> list[int]:
    """Bytes by memory that are taken before planning: those of the bodies of control flow, which run in between."""
    sizes = [0] * (max([1, *used]) + 1)
    taken = getattr(graph_module, "input_mem_buffer_sizes", [])
    return [taken[i] if 0 < i < len(taken) else size for i, size in enumerate(sizes)]


def _with_inplace(
    specs: Sequence[TensorSpec], places: dict[TensorSpec, SpecAllocResult]
) -> dict[TensorSpec, SpecAllocResult]:
    """`places`, and for what is computed in place the place of what it changes."""
    for spec in specs:
        base: TensorSpec | None = spec
        visited: set[TensorSpec] = set()
        while base is not None and base not in places and base not in visited:
            visited.add(base)
            base = base.inplace_base
        if base is None or base not in places:
            raise LoweringError(f"{spec} is computed in place of a tensor that has no place of its own")
        places[spec] = places[base]
    return places


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
        for spec, place in best.spec_dict.items():
            spec.mem_id, spec.mem_obj_id, spec.mem_offset = place.mem_id, place.mem_obj_id, place.mem_offset
        return best.bufsizes


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
        found = found.bufsizes if isinstance(found, MemoryAlgoResult) else found
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
        with graph_module.graph.inserting_after(nodes[_lifetime(spec)[1]]):
            graph_module.graph.call_function(memory.free, (spec,))  # type: ignore[arg-type]
    graph_module.recompile()


# ---- what a plan has to keep -----------------------------------------------------------------------


class Verifier:
    """Whether a planned graph is sound."""

    def __init__(
        self,
        graph_module: GraphModule,
        alloc_graph_input: bool,
        alloc_graph_output: bool,
        alloc_mutable_buffers: bool,
        graph_signature: ExportGraphSignature | None = None,
    ) -> None:
        self.graph_module = graph_module
        self.graph_signature = graph_signature
        self.alloc_graph_input = alloc_graph_input
        self.alloc_graph_output = alloc_graph_output
        self.alloc_mutable_buffers = alloc_mutable_buffers

    @classmethod
    def mem_obj_id_match(cls, lhs_spec: TensorSpec, rhs_spec: TensorSpec, accept_both_none: bool = True) -> bool:
        """Whether two tensors are in one shared object; `accept_both_none` is the answer where neither is in one."""
        if lhs_spec.mem_id != rhs_spec.mem_id:
            return False
        if lhs_spec.mem_obj_id is None and rhs_spec.mem_obj_id is None:
            return accept_both_none
        return lhs_spec.mem_obj_id == rhs_spec.mem_obj_id

    @classmethod
    def has_overlap(cls, lhs_ivl: Sequence[int], rhs_ivl: Sequence[int]) -> bool:
        """Whether two intervals, both ends included, have something in common."""
        empty = lhs_ivl[0] > lhs_ivl[1] or rhs_ivl[0] > rhs_ivl[1]
        return not empty and lhs_ivl[0] <= rhs_ivl[1] and rhs_ivl[0] <= lhs_ivl[1]

    @classmethod
    def lifetime_overlap(cls, lhs_spec: TensorSpec, rhs_spec: TensorSpec) -> bool:
        """Whether two tensors are alive at one time."""
        return _alive_together(lhs_spec, rhs_spec)

    @classmethod
    def storage_overlap(cls, lhs_spec: TensorSpec, rhs_spec: TensorSpec) -> bool:
        """Whether two tensors share bytes. Raises `LoweringError` for one that has no place."""
        if lhs_spec.mem_id != rhs_spec.mem_id:
            return False
        spans = []
        for spec in (lhs_spec, rhs_spec):
            if spec.mem_offset is None or spec.mem_offset < 0:
                raise LoweringError(f"{spec} has no place in memory (mem_offset is {spec.mem_offset})")
            spans.append((spec.mem_offset, spec.mem_offset + spec.allocated_memory - 1))
        return cls.has_overlap(*spans)

    def verify_storage_reuse(self, allow_lifetime_and_storage_overlap: bool = False) -> int:
        """How many pairs of tensors share bytes. Raises `LoweringError` if two of them are alive at one time."""
        specs = list(
            collect_specs_from_nodes(
                self.graph_module.graph.nodes,
                self.graph_signature,
                ignore_graph_input=not self.alloc_graph_input,
                ignore_graph_output=not self.alloc_graph_output,
                ignore_mutable_buffers=not self.alloc_mutable_buffers,
                do_assertion=False,
                ignore_out_var_node=False,
            )
        )
        return sum(
            self._shares(one, other, allow_lifetime_and_storage_overlap)
            for index, one in enumerate(specs)
            for other in specs[index + 1 :]
        )

    def _shares(self, one: TensorSpec, other: TensorSpec, allow_lifetime_and_storage_overlap: bool) -> bool:
        if (one.mem_obj_id is None) != (other.mem_obj_id is None):
            raise LoweringError("mem_obj_id is set on some specs and not on others")
        if not self.storage_overlap(one, other):
            return False
        in_place = one.inplace_base is other or other.inplace_base is one
        if not allow_lifetime_and_storage_overlap and not in_place and self.lifetime_overlap(one, other):
            raise LoweringError(f"two tensors share bytes while both are alive:\n  {one.debug()}\n  {other.debug()}")
        if not self.mem_obj_id_match(one, other):
            raise LoweringError(f"two tensors share bytes, but not a mem_obj_id:\n  {one.debug()}\n  {other.debug()}")
        return True

    def verify_graph_input_output(self) -> None:
        """Raise AssertionError unless inputs and outputs have memory exactly where they are to have it."""
        nodes = list(self.graph_module.graph.nodes)
        inputs = [
            node for node in nodes if node.op == "placeholder" and not _is_mutable_buffer(node, self.graph_signature)
        ]
        outputs = [node for node in nodes if node.op == "output"]
        shared = get_graph_input_tensors(nodes, self.graph_signature) & get_graph_output_tensors(nodes)
        if shared and self.alloc_graph_input != self.alloc_graph_output:
            return
        states = _mutable_buffer_specs(nodes, self.graph_signature)
        for what, asked, of in (
            ("input", self.alloc_graph_input, inputs),
            ("output", self.alloc_graph_output, outputs),
        ):
            specs = [
                spec for node in of for spec in get_node_tensor_specs(node) if not spec.const and spec not in states
            ]
            if any(spec.shape_dynamism == TensorShapeDynamism.DYNAMIC_UNBOUND for spec in specs):
                continue
            wrong = [spec for spec in specs if (spec.mem_offset is not None) != asked]
            assert not wrong, (
                f"the graph's {what}s are {'' if asked else 'not '}to have planned memory, but {wrong[0].debug()}"
            )
