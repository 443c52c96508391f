"""A program as it is emitted -> the same in ExecuTorch's execution dialect: what memory planning passes look at.

    %add = aten.add.Tensor(%x, %y)        %alloc = memory.alloc(((4,), float32))
                                   ->     %add = aten.add.out(%x, %y, out=%alloc)       meta["spec"] = TensorSpec(…)
    return %add                           return %add

Nothing here is emitted: Delegraph's emission does without `alloc` nodes. What a pass writes into the specs is read back
(`passes/memory_planning_pass.py`); after lowering, the specs say what the file says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from delegraph.aot import EdgeOpOverload, MemoryUse, ResolvedSignature, device_of, graph_modules, memory_use
from delegraph.interfaces import Device
from delegraph.program import schema
from delegraph_executorch.exir import memory
from delegraph_executorch.exir._planning_specs import update_all_tensors_lifetime
from delegraph_executorch.exir.tensor import (
    TensorSpec,
    contiguous_stride_from_shape,
    eval_upper_bound,
    stride_from_dim_order,
)

__all__ = ["Execution", "execution_of", "source_of"]

Values = Mapping[tuple[Node, int], int]
"""Result of a node -> the value whose memory it is in."""

_SOURCE = "delegraph_source"
"""The key in a graph module's `meta` under which an execution program keeps what it was made from."""


@dataclass(frozen=True, slots=True)
class Execution:
    """A program in the execution dialect; `specs` by the number of the value whose memory they describe."""

    program: ExportedProgram
    specs: Mapping[int, TensorSpec]

    def place(self, plan: schema.ExecutionPlan) -> None:
        """Let the specs say where the finished method `plan` has its tensors, and from which node to which."""
        for index, spec in self.specs.items():
            value = plan.values[index]
            place = value.allocation_info if isinstance(value, schema.Tensor) else None
            if place is not None:
                spec.mem_id, spec.mem_offset = place.memory_id, place.memory_offset
        update_all_tensors_lifetime(self.program.graph_module, self.program.graph_signature)
        meta = self.program.graph_module.meta
        meta["non_const_buffer_sizes"] = list(plan.non_const_buffer_sizes)
        if plan.non_const_buffer_device:
            meta["non_const_buffer_device"] = list(plan.non_const_buffer_device)


def source_of(program: ExportedProgram) -> ExportedProgram:
    """What an execution program was made from; any other program itself."""
    source: ExportedProgram = program.graph_module.meta.get(_SOURCE, program)
    return source


def execution_of(program: ExportedProgram, values: Values) -> Execution:
    """`program`, which was emitted, in the execution dialect; itself it is left as it is. Weights are shared."""
    from delegraph_executorch.exir.passes.execution import ToOutVarPass, copied_back

    copies: dict[Node, Node] = {}
    module = _copied(program.graph_module, copies)
    by_copy = {(copies[node], position): index for (node, position), index in values.items() if node in copies}
    constants = {copies[node] for node in ResolvedSignature.of(program).constants if node in copies}
    specs = _give_specs(module, by_copy, constants)
    _replace_views(module)
    execution = _program(program, module)
    execution.graph_signature.output_specs = copied_back(
        execution, lambda source, target: by_copy.get((source, 0)) == by_copy.get((target, 0))
    )
    ToOutVarPass(ignore_to_out_var_failure=True).call(module)
    _give_output_specs(module)
    module.meta[_SOURCE] = program
    return Execution(execution, specs)


# ---- copies ----------------------------------------------------------------------------------------


def _copied(module: GraphModule, copies: dict[Node, Node]) -> GraphModule:
    """A graph of its own, and of each body; `copies` gets every node's."""
    graph = Graph()
    own: dict[Node, Node] = {}
    for node in module.graph.nodes:
        own[node] = graph.node_copy(node, own.__getitem__)
        if isinstance(node.target, EdgeOpOverload):
            own[node].target = node.target._op
    copies.update(own)
    root: dict[str, Any] = {}
    for node in module.graph.find_nodes(op="get_attr"):
        held: Any = module
        for part in str(node.target).split("."):
            held = getattr(held, part)
        root[str(node.target)] = _copied(held, copies) if isinstance(held, GraphModule) else held
    new = GraphModule(root, graph)
    new.meta.update(module.meta)
    return new


def _program(program: ExportedProgram, module: GraphModule) -> ExportedProgram:
    """`program` with another graph, unchecked: torch's verifier knows no `alloc`."""
    new = copy(program)
    new._graph_module = module
    new._graph_signature = deepcopy(program.graph_signature)
    return new


# ---- specs -----------------------------------------------------------------------------------------


def _give_specs(
    module: GraphModule, values: Mapping[tuple[Node, int], int], constants: set[Node]
) -> dict[int, TensorSpec]:
    """A spec for every tensor; results that lie in the memory of one value, views aside, share theirs."""
    shared: dict[int, TensorSpec] = {}
    for node in (node for _, one in graph_modules(module) for node in one.graph.nodes if node.op != "output"):
        value, device = node.meta.get("val"), device_of(node)
        several = isinstance(value, (tuple, list))
        specs: list[Any] = []
        for position, one in enumerate(value if several else [value]):
            spec = _spec(one, node in constants, device)
            index = values.get((node, position))
            is_view = memory_use(node) in (MemoryUse.VIEW, MemoryUse.RESIZED_VIEW)
            specs.append(spec if spec is None or index is None or is_view else shared.setdefault(index, spec))
        node.meta["spec"] = type(value)(specs) if several else specs[0]
    return shared


def _spec(value: Any, const: bool, device: Device) -> TensorSpec | None:
    if not isinstance(value, torch.Tensor):
        return None
    sizes = [eval_upper_bound(size) for size in value.shape]
    spec = TensorSpec(value.dtype, sizes, const=const)
    spec.device, spec.device_index = device.type, device.index
    if any(not isinstance(size, int) for size in value.shape):
        spec.shape_dynamism = schema.TensorShapeDynamism.DYNAMIC_BOUND
    elif 0 not in value.stride():
        spec.dim_order = tuple(value.dim_order())
        spec.stride = tuple(stride_from_dim_order(sizes, spec.dim_order))
    return spec


def _give_output_specs(module: GraphModule) -> None:
    for _, one in graph_modules(module):
        output = one.graph.output_node()
        returned: Any = output.args[0]
        values: Sequence[Any] = returned if isinstance(returned, (tuple, list)) else [returned]
        output.meta["spec"] = tuple(v.meta.get("spec") if isinstance(v, Node) else None for v in values)


def _replace_views(module: GraphModule) -> None:
    """Views that need no memory, as views of what has some."""
    for _, one in graph_modules(module):
        for node in one.graph.nodes:
            if memory_use(node) not in (MemoryUse.VIEW, MemoryUse.RESIZED_VIEW):
                continue
            base = node.args[0]
            while base.target is memory.view:
                base = base.args[0]
            shape, spec = node.meta["spec"].shape, node.meta["spec"]
            node.meta["spec"] = copy(base.meta["spec"]) if isinstance(base.meta.get("spec"), TensorSpec) else spec
            node.meta["spec"].shape, node.meta["spec"].dim_order = shape, spec.dim_order
            node.meta["spec"].stride = contiguous_stride_from_shape(shape)
            node.target, node.args, node.kwargs = memory.view, (base, list(shape)), {}
