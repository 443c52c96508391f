"""Planned program -> the fall-backs of its delegates: each one's own graph, as kernels or another backend run it.

    delegate 0's program ── (onto another backend) ── decomposed ── passes ── prepare, emit, plan ──> its plan

They are alternatives of the delegates (`program.alternatives`). One that cannot be made is left out, with the reason:
the program runs without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from torch._ops import OpOverload
from torch.export import ExportedProgram

from delegraph.aot.arguments import read_plugins
from delegraph.aot.config import ExecutorchBackendConfig, Fallbacks
from delegraph.aot.delegation.backends import as_list, named_partitioners
from delegraph.aot.delegation.compose import compile_partitions, delegate
from delegraph.aot.delegation.forms import form_for_kernels, form_of, kept_whole
from delegraph.aot.delegation.kept_state import kept_buffers
from delegraph.aot.delegation.lowered_module import Compiled, LoweredBackendModule, with_blobs
from delegraph.aot.delegation.refusals import Refused
from delegraph.aot.emission.memory import load_planner
from delegraph.aot.emission.stages import (
    EmissionRequest,
    PlannedProgram,
    check_emittable,
    check_runnable,
    emit,
    plan,
    prepare,
)
from delegraph.aot.memory_planning import MemoryPlanningPass
from delegraph.errors import FallbackWarning, LoweringError
from delegraph.interfaces.lowering import Partitioner
from delegraph.plugins.plugin_spec import PluginSpec
from delegraph.plugins.registry import PluginRegistry
from delegraph.program.alternatives import AlternativeOf
from delegraph.program.devices import CPU, target_device

__all__ = ["Fallback", "FallbackRequest", "Runners", "make_fallbacks", "runners"]

KERNELS: Final = "kernels"
"""The name of a fall-back that no backend takes part in."""

Runners: TypeAlias = Mapping[str, Partitioner | None]
"""The partitioners whose backends are to run fall-backs, in the order of preference, by name; None: kernels alone."""


def runners(fallback: Fallbacks, plugins: PluginRegistry) -> dict[str, Partitioner | None]:
    """`ExecutorchBackendConfig.fallback`, its names looked up. Raises `LoweringError` and `PluginError`."""
    by_name: dict[str, Partitioner | None] = {}
    for runner in read_plugins("fallback", as_list(fallback)):
        partitioners = {} if runner == PluginSpec(KERNELS) else named_partitioners("fallback", [runner], plugins)
        own: dict[str, Partitioner | None] = {**partitioners} or {KERNELS: None}
        if not by_name.keys().isdisjoint(own):
            raise LoweringError(f"fallback names {', '.join(own)} twice")
        by_name |= own
    return by_name


@dataclass(frozen=True, slots=True)
class FallbackRequest:
    """`runners`, and what a fall-back has in common with the method of its delegate: `whole` are operators that may
    stand whole for a backend's sake, `preserved` those that stay so; `with_passes(method, program)` runs the user's."""

    runners: Runners
    whole: Collection[OpOverload]
    preserved: Sequence[OpOverload]
    with_passes: Callable[[str, ExportedProgram], ExportedProgram]


@dataclass(frozen=True, slots=True)
class Fallback:
    """A delegate's graph, planned to run on `runner`; or the `reason` why it cannot."""

    of: AlternativeOf
    runner: str
    planned: PlannedProgram | None = None
    compiled: Compiled | None = None
    reason: str = ""


def make_fallbacks(
    planned: PlannedProgram, compiled: Compiled, request: EmissionRequest, asked: FallbackRequest
) -> tuple[Fallback, ...]:
    """For each delegate of `planned`, whose blobs are in `compiled`, a fall-back on each of the runners. Warns, a
    `FallbackWarning`, of those that cannot be made."""
    made = (
        _made(AlternativeOf(method.name, index, place), lowered, runner, compiled, request, asked)
        for method in planned.emitted.methods
        for index, lowered in enumerate(compiled.get(module, module) for module in method.builder.delegates)
        for place, runner in enumerate(asked.runners, 1 + len(lowered.variants))
    )
    fallbacks = tuple(fallback for fallback in made if fallback is not None)
    for reason in dict.fromkeys(fallback.reason for fallback in fallbacks if fallback.reason):
        without = [fallback for fallback in fallbacks if fallback.reason == reason]
        told = ", ".join(f"delegate {f.of.delegate} of {f.of.method!r} on {f.runner}" for f in without)
        warnings.warn(f"left out the fall-back of {told}: {reason}", FallbackWarning, stacklevel=2)
    return fallbacks


def _made(
    of: AlternativeOf,
    lowered: LoweredBackendModule,
    runner: str,
    compiled: Compiled,
    request: EmissionRequest,
    asked: FallbackRequest,
) -> Fallback | None:
    """None for one that would run on the delegate's own backend."""
    reason = next(_reasons_against(of, lowered, request), "")
    if reason:
        return Fallback(of, runner, reason=reason)
    try:
        return _planned(of, lowered, runner, compiled, request, asked)
    except (LoweringError, Refused) as error:
        return Fallback(of, runner, reason=str(error))


def _reasons_against(of: AlternativeOf, lowered: LoweredBackendModule, request: EmissionRequest) -> Iterator[str]:
    device = target_device(lowered.compile_specs)
    if device != CPU:
        yield f"its tensors lie in the memory of {device}, which nothing else reads"
    state = sorted(kept_buffers(lowered))
    if state and request.planning[of.method].share_mutable_buffers:
        yield f"it keeps {', '.join(state)}, which methods share, and a fall-back's state is its own"


def _planned(
    of: AlternativeOf,
    lowered: LoweredBackendModule,
    runner: str,
    compiled: Compiled,
    request: EmissionRequest,
    asked: FallbackRequest,
) -> Fallback | None:
    """None for one that would run on the delegate's own backend."""
    program = with_blobs(lowered.program_to_compile(), compiled)
    name, partitioner = of.plan_name, asked.runners[runner]
    own: Compiled = {}
    if partitioner is not None:
        keep = kept_whole(program, partitioner, runner)
        whole = form_of(program, keep, asked.whole)
        delegated = delegate({name: whole}, {runner: partitioner}, plugins=request.plugins)
        for partition in delegated.partitions[name]:
            partition.lowered_module.has_fallback = True
        if lowered.backend_id in {partition.lowered_module.backend_id for partition in delegated.partitions[name]}:
            return None
        own = compile_partitions(delegated, request.plugins)
        program = with_blobs(delegated.programs[name], own)
    program = asked.with_passes(of.method, form_for_kernels(program, asked.preserved, asked.whole))
    alone = _request(name, request)
    methods = prepare({name: program}, alone)
    check_emittable(methods)
    emitted = emit(methods, alone)
    check_runnable(emitted, alone)
    return Fallback(of, runner, plan(emitted, alone), own)


def _request(name: str, request: EmissionRequest) -> EmissionRequest:
    """How the fall-back `name` is emitted: inputs and outputs lie where the calls of the delegate have them, and the
    state in a memory apart from the scratch. Weights stay as they are, the same as elsewhere in the file."""
    planning = MemoryPlanningPass(alloc_graph_input=False, alloc_graph_output=False, share_mutable_buffers=True)
    config: ExecutorchBackendConfig = replace(
        request.config,
        memory_planning_pass=planning,
        emit_mutable_buffer_names=True,
        external_mutable_weights=False,
        do_const_prop=False,  # what is computed of weights ahead of time would be stored beside them
    )
    return EmissionRequest(
        config,
        {name: planning},
        {name: load_planner(planning.planner, request.plugins)},
        request.operators,
        {},
        request.plugins,
    )
