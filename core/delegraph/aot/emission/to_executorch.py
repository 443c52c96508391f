"""Edge programs -> ExecutorchProgramManager: the last stage of lowering, in the order in which its steps run.

    passes ── fold constants ── out variants? ── emit ── kernels? ── plan memory ── Program

No step edits the caller's programs: passes work on copies of the graph, everything after them only reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, BinaryIO

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from delegraph.aot.checks.kernels import check_kernels
from delegraph.aot.checks.out_variants import check_out_variants
from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.edge.dialects import ATEN
from delegraph.aot.emission.constant_pool import tensor_bytes
from delegraph.aot.emission.container_metadata import dump_spec
from delegraph.aot.emission.instructions import DelegateInfo, ProgramData
from delegraph.aot.emission.memory import MemoryReport, load_planner, plan_memory, shared_memory
from delegraph.aot.emission.method import EmittedMethod, MethodOptions, emit_method
from delegraph.aot.emission.values import ValueTable
from delegraph.aot.graph.bodies import graph_modules, output_values
from delegraph.aot.graph.signature import MethodGraph, live_nodes
from delegraph.aot.graph.tensor_spec import spec_of_tensor
from delegraph.aot.passes import run_passes
from delegraph.aot.passes.constant_folding import fold_constants
from delegraph.errors import LoweringError
from delegraph.interfaces.memory_planner import MemoryPlanner
from delegraph.plugins.registry import PluginRegistry, default_registry
from delegraph.program.flat_tensor import ExternalData, FlatTensor, TensorLayout, write_flat_tensor
from delegraph.program.schema import Chain, ContainerMetadata, ExecutionPlan, NamedData, Program
from delegraph.program.serialize import serialize_program, write_program

__all__ = ["ExecutorchProgramManager", "to_executorch"]


def to_executorch(
    edge_programs: Mapping[str, ExportedProgram],
    config: ExecutorchBackendConfig | None = None,
    constant_methods: Mapping[str, Any] | None = None,
    registry: PluginRegistry | None = None,
) -> ExecutorchProgramManager:
    """Lower edge programs, by method name, to one program.

    `constant_methods` are methods without arguments that give a fixed value (numbers, bools, strings, tensors, or
    containers of these). `registry` says which kernel libraries and planners there are (default: what is installed).
    Raises `LoweringError` and its kinds.
    """
    config, registry = config or ExecutorchBackendConfig(), registry or default_registry()
    _check_names(edge_programs, constant_methods or {})
    programs = {name: _after_passes(name, edge_programs[name], config) for name in sorted(edge_programs)}
    methods = [_prepared(name, program, config) for name, program in programs.items()]
    check_out_variants(node for method in methods for node in _calls(method))
    data = ProgramData()
    emitted = [emit_method(method, data, _method_options(config)) for method in methods]
    if config.check_kernels:
        check_kernels(emitted, registry, config.kernels)
    plans, memory = _planned(emitted, load_planner(config.memory_planner, registry), config.emit_stacktrace)
    plans += [_constant_method(name, value, data) for name, value in (constant_methods or {}).items()]
    return ExecutorchProgramManager(
        executorch_program=_program(plans, data),
        config=config,
        exported_programs=MappingProxyType(programs),
        debug_handle_map={m.name: m.builder.debug_handles() for m in emitted},
        delegate_map={m.name: m.builder.delegate_infos for m in emitted},
        memory=memory,
        tensor_data=_tensor_data(data),
    )


@dataclass(frozen=True)
class ExecutorchProgramManager:
    """A finished program: its records, its bytes, and what is known about it.

    `debug_handle_map` and `delegate_map` map method and instruction to debug handles and to delegates; `memory` has
    each method's planned bytes and their lower bound; `tensor_data` the `.ptd` files by name.
    """

    executorch_program: Program
    config: ExecutorchBackendConfig
    exported_programs: Mapping[str, ExportedProgram]
    debug_handle_map: Mapping[str, Mapping[int, Any]]
    delegate_map: Mapping[str, Mapping[int, DelegateInfo]]
    memory: Mapping[str, MemoryReport]
    tensor_data: Mapping[str, FlatTensor]

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of all methods, sorted."""
        return tuple(plan.name for plan in self.executorch_program.execution_plan)

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        """The edge program that a method was emitted from, passes applied. Raises `LoweringError` if there is none."""
        if method_name not in self.exported_programs:
            raise LoweringError(f"no edge program {method_name!r}; there are {', '.join(self.exported_programs)}")
        return self.exported_programs[method_name]

    @cached_property
    def buffer(self) -> bytes:
        """The bytes of the `.pte`."""
        return serialize_program(self.executorch_program, self.config.serialization)

    def write_to_file(self, open_file: BinaryIO) -> None:
        """Write the `.pte` to an open binary file."""
        open_file.write(self.buffer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the `.pte` to `path`, whole or not at all; its `.ptd` files, if it has any, go beside it first."""
        if self.tensor_data:
            self.write_tensor_data_to_file(os.path.dirname(os.path.abspath(path)))
        write_program(self.executorch_program, path, self.config.serialization)

    def write_tensor_data_to_file(self, outdir: str | os.PathLike[str]) -> None:
        """Write each `.ptd` of the program into the directory `outdir`, as `<name>.ptd`."""
        os.makedirs(outdir, exist_ok=True)
        for name, flat_tensor in self.tensor_data.items():
            path = os.path.join(outdir, name if name.endswith(".ptd") else f"{name}.ptd")
            write_flat_tensor(flat_tensor, path, self.config.segment_alignment)


# ---- steps -----------------------------------------------------------------------------------------


def _check_names(programs: Mapping[str, Any], constant_methods: Mapping[str, Any]) -> None:
    both = sorted(programs.keys() & constant_methods.keys())
    if both:
        raise LoweringError(f"{', '.join(both)}: a method and a constant method of one name; rename one of them")
    if not programs and not constant_methods:
        raise LoweringError("there is no method to lower; pass at least one exported program")


def _after_passes(name: str, program: ExportedProgram, config: ExecutorchBackendConfig) -> ExportedProgram:
    passes = config.passes_of(name)
    return run_passes(program, passes, ATEN) if passes else program


def _prepared(name: str, program: ExportedProgram, config: ExecutorchBackendConfig) -> MethodGraph:
    method = MethodGraph.of_program(name, program)
    return fold_constants(method) if config.do_const_prop else method


def _calls(method: MethodGraph) -> list[Node]:
    """The operator calls that will be emitted, those in the bodies of control flow included."""
    roots = [*method.outputs, *(write_back.source for write_back in method.write_backs)]
    calls: list[Node] = []
    for path, module in graph_modules(method.program.graph_module):
        graph = module.graph
        live = live_nodes(graph, output_values(graph) if path else roots, method.constants)
        calls += (node for node in live if node.op == "call_function" and node not in method.constants)
    return calls


def _method_options(config: ExecutorchBackendConfig) -> MethodOptions:
    return MethodOptions(
        alloc_graph_input=config.alloc_graph_input,
        alloc_graph_output=config.alloc_graph_output,
        alloc_mutable_buffers=config.alloc_mutable_buffers,
        share_mutable_buffers=config.share_mutable_buffers,
        elide_views=config.remove_view_copy,
        external_tag=config.external_tag,
    )


def _planned(
    methods: Sequence[EmittedMethod], planner: MemoryPlanner, with_stacktrace: bool
) -> tuple[list[ExecutionPlan], dict[str, MemoryReport]]:
    shared = shared_memory(methods)
    plans: list[ExecutionPlan] = []
    memory: dict[str, MemoryReport] = {}
    for method in methods:
        builder = method.builder
        values, memory[method.name] = plan_memory(method, planner, shared)
        stacktrace = builder.stacktrace() if with_stacktrace else None
        plans.append(
            ExecutionPlan(
                name=method.name,
                values=values,
                inputs=method.inputs,
                outputs=method.outputs,
                chains=(Chain(tuple(builder.instructions), stacktrace=stacktrace),),
                operators=tuple(builder.operators),
                delegates=tuple(builder.delegates),
                non_const_buffer_sizes=memory[method.name].buffer_sizes,
                container_meta_type=method.container,
            )
        )
    return plans, memory


def _constant_method(name: str, value: Any, data: ProgramData) -> ExecutionPlan:
    """A method without instructions whose outputs are values of the file."""
    leaves, spec = pytree.tree_flatten(value)
    table = ValueTable()
    outputs = tuple(_constant_output(leaf, table, data) for leaf in leaves)
    return ExecutionPlan(
        name=name,
        values=tuple(table.values),
        inputs=(),
        outputs=outputs,
        chains=(Chain(()),),
        non_const_buffer_sizes=(0,),
        container_meta_type=ContainerMetadata("", dump_spec(spec)),
    )


def _constant_output(leaf: Any, table: ValueTable, data: ProgramData) -> int:
    if not isinstance(leaf, torch.Tensor):
        return table.scalar(leaf)
    spec = spec_of_tensor(leaf)
    return table.tensor(spec, None, data.constants.add_tensor(leaf, spec.dim_order))


def _program(plans: Sequence[ExecutionPlan], data: ProgramData) -> Program:
    named = data.named_data.get_named_data_store_output().pte_data
    mutable = data.mutable_data.buffers
    return Program(
        execution_plan=tuple(sorted(plans, key=lambda plan: plan.name)),
        constants=tuple(data.constants.buffers),
        mutable_data=tuple(mutable) if len(mutable) > 1 else (),
        delegate_data=tuple(data.delegate_data),
        named_data=MappingProxyType(dict(named)),
    )


def _tensor_data(data: ProgramData) -> dict[str, FlatTensor]:
    """The `.ptd` files: external weights by name, and blobs that backends put there."""
    files: dict[str, dict[str, ExternalData]] = {}
    for tag, weights in data.external.items():
        for name, constant in weights.items():
            spec = spec_of_tensor(constant.tensor)
            layout = TensorLayout(spec.scalar_type, spec.sizes, spec.dim_order)
            content = tensor_bytes(constant.tensor, spec.dim_order)
            files.setdefault(tag, {})[name] = ExternalData(content, layout)
    for tag, blobs in data.named_data.get_named_data_store_output().external_data.items():
        files.setdefault(tag, {}).update((key, _external(blob)) for key, blob in blobs.items())
    return {tag: FlatTensor(MappingProxyType(entries)) for tag, entries in files.items()}


def _external(blob: NamedData) -> ExternalData:
    return ExternalData(blob.data, None, blob.alignment)
