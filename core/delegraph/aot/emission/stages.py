"""Edge programs -> planned program: emission's stages, functions from a value to the next, for a pipeline to name.

    edge programs ── prepare ──> MethodGraphs ── emit ──> EmittedProgram
        ── plan ──> PlannedProgram ── (backends compile) ── assemble.py ──> ExecutorchProgramManager

Everything up to `plan` works on delegates whose blobs are still empty, so whatever can be refused is refused before a
backend's compiler runs. No stage edits the caller's programs: passes work on copies of the graph, the others read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from delegraph.aot.checks.config import check_config
from delegraph.aot.checks.kernels import check_kernels, operators_by_library
from delegraph.aot.checks.limits import warn_of_limits
from delegraph.aot.checks.memory_ids import check_memory_ids
from delegraph.aot.checks.out_variants import check_out_variants
from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.delegation.external_constants import tag_constants
from delegraph.aot.delegation.kept_state import changed_buffers
from delegraph.aot.delegation.propagate_device import PropagateDevicePass
from delegraph.aot.emission.container_metadata import dump_spec
from delegraph.aot.emission.hierarchy import check_patterns
from delegraph.aot.emission.instructions import ProgramData
from delegraph.aot.emission.memory import MemoryReport, SharedMemory, load_planner, plan_memory, shared_memory
from delegraph.aot.emission.method import EmittedMethod, emit_method
from delegraph.aot.emission.overlap import overlap_delegates
from delegraph.aot.emission.training import training_methods
from delegraph.aot.emission.values import MethodValues
from delegraph.aot.graph.edit import copy_program
from delegraph.aot.graph.memory_use import clear_memory_use
from delegraph.aot.graph.signature import SHARED_STATE, MethodGraph, ResolvedSignature
from delegraph.aot.graph.tensor_spec import spec_of_tensor
from delegraph.aot.memory_planning import ALIGNMENT, MemoryPlanningPass
from delegraph.aot.passes.constant_folding import ConstantFolding
from delegraph.aot.passes.float32_quantization import Float32Quantization
from delegraph.aot.passes.kernel_copies import KernelCopies
from delegraph.aot.passes.number_operands import NumberOperands
from delegraph.aot.passes.part_elision import PartElision
from delegraph.aot.passes.reinplacing import Reinplacing
from delegraph.aot.passes.symbolic_powers import SymbolicPowers
from delegraph.aot.passes.view_elision import ViewElision
from delegraph.aot.passes.weights_to_outputs import WeightsToOutputs
from delegraph.interfaces.graph_pass import ExportedProgramPassBase
from delegraph.interfaces.memory_planner import MemoryPlanner
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.schema import Chain, ContainerMetadata, ExecutionPlan
from delegraph.program.shared_state import SharedBuffers

__all__ = [
    "EmissionRequest",
    "EmittedProgram",
    "PlannedProgram",
    "built_in_passes",
    "check_emittable",
    "check_runnable",
    "emit",
    "make_request",
    "plan",
    "prepare",
]


@dataclass(frozen=True, slots=True)
class EmissionRequest:
    """The caller's wishes for emission, every name in them looked up.

    `planning` and `planners` are by method. `operators` maps the device's kernel libraries to the operators that they
    have; None: it is not to be checked.
    """

    config: ExecutorchBackendConfig
    planning: Mapping[str, MemoryPlanningPass]
    planners: Mapping[str, MemoryPlanner]
    operators: Mapping[str, frozenset[str]] | None
    constant_methods: Mapping[str, object]
    plugins: PluginRegistry


@dataclass(frozen=True, slots=True)
class EmittedProgram:
    """Methods whose tensors have no places yet, those that only give constants, and the data that all of them share."""

    methods: tuple[EmittedMethod, ...]
    constant_methods: tuple[ExecutionPlan, ...]
    data: ProgramData


@dataclass(frozen=True, slots=True)
class PlannedProgram:
    """`plans` correspond to the emitted methods; complete but for their delegates, which need their blobs first."""

    emitted: EmittedProgram
    plans: tuple[ExecutionPlan, ...]
    memory: Mapping[str, MemoryReport]
    shared: SharedBuffers | None = None
    """Which methods share their mutable buffers, if any does."""


def make_request(
    methods: Sequence[str],
    config: ExecutorchBackendConfig,
    constant_methods: Mapping[str, object],
    plugins: PluginRegistry,
) -> EmissionRequest:
    """Look up whatever `config` names; `methods` are the names of all methods that have a graph.

    Raises `LoweringError`, `PluginError` for a name that nobody offers, `InvalidArgument` for an alignment.
    """
    check_config(config, methods, constant_methods)
    planning = {method: config.memory_planning(method) for method in methods}
    return EmissionRequest(
        config,
        planning,
        {method: load_planner(own.planner, plugins) for method, own in planning.items()},
        operators_by_library(config.kernels, plugins) if config.check_kernels else None,
        constant_methods,
        plugins,
    )


def prepare(programs: Mapping[str, ExportedProgram], request: EmissionRequest) -> list[MethodGraph]:
    """The methods after the passes that `built_in_passes` lists, their signatures resolved."""
    shared = _shared_states(programs, request)
    return [_after_built_in_passes(name, program, request, shared) for name, program in programs.items()]


def _shared_states(programs: Mapping[str, ExportedProgram], request: EmissionRequest) -> set[str]:
    """The buffers that some method changes, by name, where methods share them: no method may hold a copy."""
    sharing = [program for name, program in programs.items() if request.planning[name].share_mutable_buffers]
    return set[str]().union(*map(changed_buffers, sharing))


def built_in_passes(request: EmissionRequest, method: str) -> tuple[ExportedProgramPassBase, ...]:
    """The passes over the program of `method` before it is emitted, in order."""
    config, planning = request.config, request.planning[method]
    folding = (ConstantFolding(),) if config.do_const_prop else ()
    views = ViewElision(planning.alloc_graph_input, planning.alloc_graph_output)
    parts = PartElision(planning.alloc_graph_input, planning.alloc_graph_output, _largest_alignment(planning))
    elided = (views, parts) if config.remove_view_copy else ()
    devices = PropagateDevicePass(*config.skipped_copies(method), config.enable_non_cpu_memory_planning)
    for_kernels = (SymbolicPowers(), NumberOperands(), Float32Quantization(), KernelCopies())
    return (WeightsToOutputs(), *for_kernels, *folding, devices, Reinplacing(), *elided)


def _largest_alignment(planning: MemoryPlanningPass) -> int:
    """Each tensor's place, in whichever memory, is a multiple of so many bytes."""
    memories = planning.hierarchy.memories if planning.hierarchy is not None else ()
    return max(ALIGNMENT, planning.alignment, *(memory.alignment for memory in memories))


def _after_built_in_passes(
    name: str, program: ExportedProgram, request: EmissionRequest, shared: Collection[str]
) -> MethodGraph:
    """One copy for all passes: they edit it in turn, and trust each other. `shared` are states of all methods."""
    MethodGraph.of_program(name, program)  # refuses what no program file can hold
    program = copy_program(program)
    clear_memory_use(program.graph_module)
    tag_constants(program, request.config)
    for node, tensor in ResolvedSignature.of(program).constants.items():
        if tensor.name in shared:
            node.meta[SHARED_STATE] = True
    for built_in in built_in_passes(request, name):
        program = built_in(program).exported_program
    return MethodGraph.of_program(name, program)


def check_emittable(methods: Sequence[MethodGraph]) -> None:
    """Raise `MissingOutVariant` or `LoweringError` for calls that no program can hold."""
    check_out_variants(call for method in methods for call in method.calls())
    check_memory_ids(methods)


def emit(methods: Sequence[MethodGraph], request: EmissionRequest) -> EmittedProgram:
    """The methods' values and instructions. Raises `UnboundedDimension`, `UnsupportedOperator`, `LoweringError`."""
    data = ProgramData()
    emitted = [emit_method(method, data, request.config, request.planning[method.name]) for method in methods]
    if request.config.overlap_delegates:
        emitted = [overlap_delegates(method, request.plugins) for method in emitted]
    constant_methods = {**training_methods(methods), **request.constant_methods}.items()
    return EmittedProgram(
        tuple(emitted), tuple(_constant_method(name, value, data) for name, value in constant_methods), data
    )


def check_runnable(program: EmittedProgram, request: EmissionRequest) -> None:
    """Raise `MissingKernel` for the operators that the device's kernel libraries lack."""
    if request.operators is not None:
        check_kernels({m.name: m.builder.users for m in program.methods}, request.operators, request.plugins)


def plan(program: EmittedProgram, request: EmissionRequest) -> PlannedProgram:
    """A place for each tensor. Raises `PluginError` if the planner's answer is unsound."""
    planning = request.planning
    hierarchies = {name: plan.hierarchy for name, plan in planning.items()}
    for hierarchy in hierarchies.values():
        if hierarchy is not None:
            check_patterns((method for method in program.methods if hierarchies[method.name] == hierarchy), hierarchy)
    described = max((len(plan.memories) for plan in hierarchies.values() if plan is not None), default=1)
    alignment = max((plan.alignment for plan in planning.values()), default=1)
    shared = shared_memory(program.methods, alignment, described)
    plans: list[ExecutionPlan] = []
    memory: dict[str, MemoryReport] = {}
    for method in program.methods:
        builder = method.builder
        name = method.name
        values, devices, memory[name] = plan_memory(method, planning[name], request.planners[name], shared)
        stacktrace = builder.stacktrace() if request.config.emit_stacktrace else None
        plans.append(
            ExecutionPlan(
                name=method.name,
                values=values,
                inputs=method.inputs,
                outputs=method.outputs,
                chains=(Chain(tuple(builder.instructions), stacktrace=stacktrace),),
                operators=tuple(builder.operators),
                non_const_buffer_sizes=memory[method.name].buffer_sizes,
                container_meta_type=method.container,
                non_const_buffer_device=devices or None,
            )
        )
    warn_of_limits(plans)
    return PlannedProgram(program, tuple(plans), memory, _shared_buffers(program, planning, shared))


def _shared_buffers(
    program: EmittedProgram, planning: Mapping[str, MemoryPlanningPass], shared: SharedMemory
) -> SharedBuffers | None:
    sharing = [method for method in program.methods if planning[method.name].share_mutable_buffers]
    if not any(changed_buffers(method.program) for method in sharing):
        return None
    return SharedBuffers(shared.memory_id if shared.offsets else 0, frozenset(method.name for method in sharing))


def _constant_method(name: str, value: object, data: ProgramData) -> ExecutionPlan:
    """A method without instructions whose outputs are values of the file."""
    leaves, spec = pytree.tree_flatten(value)
    table = MethodValues()
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


def _constant_output(leaf: object, table: MethodValues, data: ProgramData) -> int:
    if not isinstance(leaf, torch.Tensor):
        return table.scalar(leaf)
    spec = spec_of_tensor(leaf)
    return table.tensor(spec, None, data.constants.add_tensor(leaf, spec.dim_order))
