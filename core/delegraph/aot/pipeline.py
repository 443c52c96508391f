"""The stages of lowering as data, and what is done around each of them: timing, events, dumps, verification.

    settings    every name and mapping that the user gave is looked up
    export      model -> ATen programs                 what `torch.export` gives
    quantize    the methods with quantizers: calibrated, their weights and values quantized
    functional  ATen -> functional core ATen           what some backend wants whole stays whole
    edge        -> edge dialect
    transform   the user's passes
    partition   -> programs that call delegates        which are not compiled yet
    kernels     what no backend took is decomposed
    passes      the configuration's passes
    prepare     numbers for kernels, constants folded, updates in place, views without copies
    emit        -> values and instructions
    plan        -> a place in memory for every tensor
    compile     the backends make their blobs           what one refuses is left out, from partition on again
    fallback    what is to run where a backend cannot, if asked for
    assemble    -> the finished program

`lower` runs them all in this order, so that whatever can be refused is refused before a compiler runs. `to_edge`,
`to_backend`, `to_executorch` … run some of them (`lower.py`): a stage takes a `Lowering` and gives the next one. Those
of plug-ins that `LoweringConfig.stages` names stand among them, each where it says.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Final

from torch._ops import OpOverload
from torch.export import ExportedProgram

from delegraph.aot.checks.backends import check_backends, warn_of_absent_halves
from delegraph.aot.checks.shared_state import check_shared_state
from delegraph.aot.delegation.compose import compile_partitions, delegate, merged
from delegraph.aot.delegation.external_constants import tag_constants
from delegraph.aot.delegation.forms import (
    any_keeps,
    form_for_kernels,
    kept_whole,
    transformed_for_pre_decomposition,
)
from delegraph.aot.delegation.kept_state import changed_buffers
from delegraph.aot.delegation.reexported import with_flat_calls
from delegraph.aot.delegation.refusals import Refusal, until_compiled
from delegraph.aot.delegation.report import make_report
from delegraph.aot.dump import Dumps
from delegraph.aot.edge import dialects
from delegraph.aot.edge.dialects import Dialect, verify, with_rules
from delegraph.aot.edge.memory_formats import keep_memory_formats
from delegraph.aot.edge.to_edge_dialect import to_edge_dialect
from delegraph.aot.emission import stages as emission
from delegraph.aot.emission.assemble import assemble
from delegraph.aot.emission.fallback import FallbackRequest, make_fallbacks, runners
from delegraph.aot.export import ExportRequest, export_method
from delegraph.aot.export_checks import check_mode
from delegraph.aot.functional.decompose import Keep
from delegraph.aot.functional.functionalize import functionalize
from delegraph.aot.functional.vmap_regions import without_vmap
from delegraph.aot.graph.debug_handles import close_gaps
from delegraph.aot.graph.shared_names import with_shared_names
from delegraph.aot.graph.stated_bounds import check_bounds, with_bounds
from delegraph.aot.passes.named import passes_by_method
from delegraph.aot.passes.run import run_passes
from delegraph.aot.quantize.program import quantize_program
from delegraph.aot.quantize.torchao_weights import asked_by_others, has_torchao_weights, with_plain_weights
from delegraph.aot.stage import Lowering, Stage, StageWatcher
from delegraph.errors import LoweringError
from delegraph.interfaces.lowering import Partitioner
from delegraph.logs import Logger
from delegraph.program.user_metadata import metadata_fault

__all__ = ["ALL", "EDGE", "EXECUTORCH", "FROM_KERNELS", "TO_PARTITION", "arranged", "run", "run_to_blobs"]


_log = Logger(__name__)


def run(lowering: Lowering, stages: Sequence[Stage], watchers: Sequence[StageWatcher] = ()) -> Lowering:
    """Run `stages` in order, with those that plug-ins add beside them. Raises `VerificationError` where a program is
    not in a stage's dialect, and as they do."""
    everything, stages = arranged(ALL, lowering.stages), arranged(stages, lowering.stages)
    watchers = (_Tools(), *Dumps.asked_for(os.environ, [stage.name for stage in everything]), *watchers)
    for position, stage in enumerate(stages):
        for methods in [(method,) for method in lowering.methods] if stage.by_method else [lowering.methods]:
            for watcher in watchers:
                watcher.started(stage, methods, lowering, stages[position:])
            start = perf_counter()
            _check(stage.requires, lowering, methods, ())
            lowering = stage.run(lowering, methods)
            _check(stage.ensures, lowering, methods, lowering.kept_operators if stage.keeps_whole else ())
            seconds = perf_counter() - start
            _log.debug("stage %s of %s: %.3f s", stage.name, ", ".join(methods), seconds)
            for watcher in watchers:
                watcher.done(stage, methods, lowering, seconds)
    return lowering


def run_to_blobs(
    lowering: Lowering, rest: Sequence[Stage], watchers: Sequence[StageWatcher] = ()
) -> tuple[Lowering, Lowering]:
    """Run `partition`, `kernels` and the `rest`, in which `compile` is; again from `partition` on for as long as a
    backend refuses to compile what was cut out for it. What is there behind `kernels`, where the programs still run in
    eager mode, and behind all."""

    def attempt(refusals: tuple[Refusal, ...]) -> tuple[Lowering, Lowering]:
        cut = run(replace(lowering, refusals=refusals), [PARTITION, KERNELS], watchers)
        return cut, run(cut, rest, watchers)

    return until_compiled(attempt)


def arranged(stages: Iterable[Stage], added: Iterable[Stage]) -> list[Stage]:
    """`stages` with those of `added`, in order, whose place is beside one of them or of those added so far."""
    arranged = list(stages)
    for stage in added:
        names = [other.name for other in arranged]
        if stage.before in names:
            arranged.insert(names.index(stage.before), stage)
        elif stage.after in names:
            place = names.index(stage.after) + 1
            while place < len(arranged) and arranged[place].after == stage.after:
                place += 1
            arranged.insert(place, stage)
    return arranged


def _check(dialect: Dialect | None, lowering: Lowering, methods: Sequence[str], kept: Collection[OpOverload]) -> None:
    config = lowering.config.edge
    if dialect is not None and config._check_ir_validity:
        for method in methods:
            verify(lowering.programs[method], with_rules(dialect, lowering.rules), {*kept, *config.allowed_ops})


class _Tools:
    """Tells the installed tools."""

    def started(self, stage: Stage, methods: Sequence[str], lowering: Lowering, remaining: Sequence[Stage]) -> None:
        pass

    def done(self, stage: Stage, methods: Sequence[str], lowering: Lowering, seconds: float) -> None:
        method = methods[0] if stage.by_method else "*"
        lowering.plugins.notify("lowering_stage_done", stage=stage.name, method=method, seconds=seconds)
        if stage.name == "partition" and lowering.plugins.offers("plugins"):
            report = make_report(lowering.programs, lowering.delegated)
            lowering.plugins.notify("partition_done", report=report)


# ---- the stages, in order --------------------------------------------------------------------------


def _export(lowering: Lowering, methods: Sequence[str]) -> Lowering:
    programs = {m: without_vmap(_exported(m, lowering.requests[m])) for m in methods}
    done = lowering.with_programs({m: with_bounds(program, lowering.bounds) for m, program in programs.items()})
    if done.programs.keys() >= {*done.methods}:
        check_bounds(done.programs, done.bounds)
    return done


def _exported(method: str, request: ExportRequest) -> ExportedProgram:
    program = export_method(method, request)
    check_mode(method, request.model, program)
    return program


def _quantize(lowering: Lowering, methods: Sequence[str]) -> Lowering:
    asked = {m: lowering.quantization[m] for m in methods if m in lowering.quantization}
    lowering = lowering.with_programs(with_shared_names(lowering.programs))
    for how in asked.values():
        how.shared_buffers.look_for(lowering.programs.values())
    made = {m: quantize_program(m, lowering.programs[m], how) for m, how in asked.items()}
    done = lowering.with_programs({m: result.program for m, result in made.items()})
    reports = {m: result.report for m, result in made.items() if result.report is not None}
    return replace(done, quantized={**lowering.quantized, **reports})


def _settings(lowering: Lowering, methods: Sequence[str]) -> Lowering:
    config = lowering.config
    if fault := metadata_fault(config.executorch.metadata):
        raise LoweringError(fault)
    passes = passes_by_method("ExecutorchBackendConfig.passes", config.executorch.passes, methods, lowering.plugins)
    request = emission.make_request(sorted(methods), config.executorch, config.constant_methods, lowering.plugins)
    return replace(
        lowering, request=request, passes=passes, runners=runners(config.executorch.fallback, lowering.plugins)
    )


def _functional(lowering: Lowering, methods: Sequence[str]) -> Lowering:
    (method,) = methods
    preserved = dict.fromkeys(lowering.config.edge.preserve_ops)
    partitioners = lowering.partitioners.get(method, {})

    def asked(program: ExportedProgram) -> dict[str, Keep]:
        return {name: {**kept_whole(program, wants, name), **preserved} for name, wants in partitioners.items()}

    program = transformed_for_pre_decomposition(lowering.programs[method], partitioners)
    if has_torchao_weights(program):
        others = asked_by_others(any_keeps(asked(program).values()))
        program = with_plain_weights(method, program, {**others, **preserved})
    program = with_flat_calls(program)
    keeps = asked(program)
    functional = functionalize(program, {**any_keeps(keeps.values()), **preserved})
    return replace(lowering.with_programs({method: functional}), keeps={**lowering.keeps, method: keeps})


def _edge(lowering: Lowering, methods: Sequence[str]) -> Lowering:
    programs = {method: lowering.programs[method] for method in methods}
    if lowering.config.edge._skip_dim_order:
        programs = {method: keep_memory_formats(program) for method, program in programs.items()}
    programs = {method: to_edge_dialect(program) for method, program in programs.items()}
    for program in programs.values():
        close_gaps(program.graph_module)
    return lowering.with_programs(programs)


def _transform(lowering: Lowering, methods: Sequence[str]) -> Lowering:
    config = lowering.config
    passes = lowering.transforms
    dialect = with_rules(dialects.EDGE, lowering.rules) if config.edge._check_ir_validity else None
    kept = {*lowering.kept_operators, *config.edge.allowed_ops}
    return lowering.with_programs({m: run_passes(lowering.programs[m], passes[m], dialect, kept) for m in methods})


def _partition(lowering: Lowering, _methods: Sequence[str]) -> Lowering:
    lowering = _sharing(lowering)
    delegated = lowering.delegated
    changed = {method: changed_buffers(program) for method, program in lowering.programs.items()}
    elsewhere = {method: set[str]().union(*(changed[m] for m in changed if m != method)) for method in changed}
    for methods in _that_share(lowering.partitioners):
        programs = {method: lowering.programs[method] for method in methods}
        for program in programs.values():
            tag_constants(program, lowering.config.executorch, keep=True)
        own = lowering.partitioners[methods[0]]
        done = delegate(programs, own, lowering.keeps, elsewhere, lowering.plugins, lowering.refusals)
        delegated = merged(delegated, done)
        lowering = lowering.with_programs(done.programs)
    check_backends(delegated.partitions, lowering.plugins)
    return replace(lowering, delegated=delegated)


def _sharing(lowering: Lowering) -> Lowering:
    """`lowering` with the state that its methods share, if they shall, under one name."""
    config = lowering.config.executorch
    if not any(config.memory_planning(method).share_mutable_buffers for method in lowering.programs):
        return lowering
    return lowering.with_programs(with_shared_names(lowering.programs))


def _that_share(partitioners: Mapping[str, Mapping[str, Partitioner]]) -> list[list[str]]:
    """Groups of methods with the same partitioners: each group is cut together."""
    groups: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for method, own in partitioners.items():
        if own:
            groups.setdefault(tuple((name, id(partitioner)) for name, partitioner in own.items()), []).append(method)
    return list(groups.values())


def _kernels(lowering: Lowering, methods: Sequence[str]) -> Lowering:
    preserved = lowering.config.edge.preserve_ops
    return lowering.with_programs(
        {m: form_for_kernels(lowering.programs[m], preserved, lowering.kept_operators) for m in methods}
    )


def _passes(lowering: Lowering, methods: Sequence[str]) -> Lowering:
    dialect, kept = with_rules(dialects.ATEN, lowering.rules), lowering.config.edge.allowed_ops
    return lowering.with_programs(
        {m: run_passes(lowering.programs[m], lowering.passes.get(m, ()), dialect, kept) for m in methods}
    )


def _prepare(lowering: Lowering, methods: Sequence[str]) -> Lowering:
    lowering = _sharing(lowering)
    assert lowering.request is not None
    programs = {method: lowering.programs[method] for method in sorted(methods)}
    check_shared_state(programs, lowering.config.executorch, lowering.plugins)
    prepared = emission.prepare(programs, lowering.request)
    return replace(lowering.with_programs({m.name: m.program for m in prepared}), prepared=prepared)


def _emit(lowering: Lowering, _methods: Sequence[str]) -> Lowering:
    assert lowering.request is not None
    emission.check_emittable(lowering.prepared)
    emitted = emission.emit(lowering.prepared, lowering.request)
    emission.check_runnable(emitted, lowering.request)
    return replace(lowering, emitted=emitted)


def _plan(lowering: Lowering, _methods: Sequence[str]) -> Lowering:
    assert lowering.request is not None
    assert lowering.emitted is not None
    return replace(lowering, planned=emission.plan(lowering.emitted, lowering.request))


def _compile(lowering: Lowering, _methods: Sequence[str]) -> Lowering:
    for partition in (part for own in lowering.delegated.partitions.values() for part in own):
        partition.lowered_module.has_fallback = bool(lowering.runners)
    compiled = compile_partitions(lowering.delegated, lowering.plugins, lowering.refusals)
    warn_of_absent_halves((module.backend_id for module in compiled), lowering.plugins)
    return lowering.with_blobs({**lowering.compiled, **compiled})


def _fallback(lowering: Lowering, _methods: Sequence[str]) -> Lowering:
    if not lowering.runners:
        return lowering
    assert lowering.planned is not None and lowering.request is not None
    dialect, edge = with_rules(dialects.ATEN, lowering.rules), lowering.config.edge

    def with_passes(method: str, program: ExportedProgram) -> ExportedProgram:
        return run_passes(program, lowering.passes.get(method, ()), dialect, edge.allowed_ops)

    asked = FallbackRequest(lowering.runners, lowering.kept_operators, edge.preserve_ops, with_passes)
    return replace(lowering, fallbacks=make_fallbacks(lowering.planned, lowering.compiled, lowering.request, asked))


def _assemble(lowering: Lowering, _methods: Sequence[str]) -> Lowering:
    assert lowering.planned is not None
    seen = lowering.delegated.seen
    result = assemble(lowering.planned, lowering.config.executorch, lowering.compiled, lowering.fallbacks, seen)
    return replace(lowering, result=result.with_etrecord(lowering.etrecord))


EXPORT = Stage("export", _export, by_method=True)
QUANTIZE = Stage("quantize", _quantize, by_method=True, requires=dialects.ATEN)
SETTINGS = Stage("settings", _settings)
FUNCTIONAL = Stage("functional", _functional, True, dialects.ATEN, dialects.FUNCTIONAL, keeps_whole=True)
TO_EDGE = Stage("edge", _edge, True, None, dialects.EDGE, keeps_whole=True)
TRANSFORM = Stage("transform", _transform)
PARTITION = Stage("partition", _partition)
KERNELS = Stage("kernels", _kernels, by_method=True, ensures=dialects.EDGE)
PASSES = Stage("passes", _passes)
PREPARE = Stage("prepare", _prepare)
EMIT = Stage("emit", _emit)
PLAN = Stage("plan", _plan)
COMPILE = Stage("compile", _compile)
FALLBACK = Stage("fallback", _fallback)
ASSEMBLE = Stage("assemble", _assemble)

EDGE: Final = (FUNCTIONAL, TO_EDGE)
EXECUTORCH: Final = (PASSES, PREPARE, EMIT, PLAN)
"""To a program that only lacks its blobs."""

TO_PARTITION: Final = (SETTINGS, EXPORT, QUANTIZE, *EDGE, TRANSFORM)
FROM_KERNELS: Final = (*EXECUTORCH, COMPILE, FALLBACK, ASSEMBLE)
ALL: Final = (*TO_PARTITION, PARTITION, KERNELS, *FROM_KERNELS)
