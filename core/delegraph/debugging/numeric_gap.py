"""`numeric_gap`: where the values of a `.pte` leave torch's, layer by layer, through delegates.

    model ── exported ── functional program ── torch's value of each call, by debug handle
                                                     │  compared
    m.pte ── one run with a tracer ────────── values of kernels' calls, and of the steps that a backend reports
         └── delegates that report none ── the same calls, cut out, compiled with each value as a result

The functional program of the model has the handles that the program carries as debug data: by these they are joined.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from delegraph.aot.arguments import read_plugins
from delegraph.aot.export import Model, export_method, export_requests
from delegraph.aot.graph.stated_bounds import bounded
from delegraph.debugging.debug import QUANTIZED, is_quantized, with_inputs
from delegraph.debugging.expected_values import Delegate, ExpectedValues, Value, gap
from delegraph.debugging.layer_gaps import LayerGap, NumericGap, with_beginnings
from delegraph.debugging.prepared import functional_form, prepared
from delegraph.debugging.subgraph import Reference
from delegraph.debugging.trial import compiled
from delegraph.debugging.verdict import Verdict
from delegraph.devtools.backend_reports import asked_to_report
from delegraph.errors import DelegraphError, InvalidArgument, cause_of
from delegraph.plugins.plugin_spec import PluginName, PluginSpec
from delegraph.plugins.registry import PluginRegistry, default_registry
from delegraph.program.debug_data import DebugData, debug_data_of
from delegraph.program.schema import Buffer, DelegateCall, ExecutionPlan
from delegraph.runtime.execution.tracing import EXECUTE, DebugLevel, EventTracer
from delegraph.runtime.module import Module, load
from delegraph.runtime.program import Program
from delegraph.runtime.resolution.backend_options import BackendOptions, by_backend_id
from delegraph.runtime.values.tensors import to_torch

__all__ = ["backend_names", "numeric_gap"]


def numeric_gap(
    program: str | os.PathLike[str] | Buffer,
    model: Model,
    args: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    backends: Sequence[PluginName] | None = None,
    dynamic_shapes: Any = None,
    bounds: Mapping[str, int] | None = None,
    backend_options: BackendOptions | None = None,
    data_path: Sequence[str] | None = None,
    tolerance: float | None = None,
    progress: Callable[[str], object] | None = None,
) -> NumericGap:
    """Compare each layer of a `.pte` with torch, and tell at which of them wrong numbers begin.

        gap = delegraph.numeric_gap("model.pte", model, (x,))
        print(gap)                 # the layers at which it begins, and those furthest from torch, by module and line

    program: the `.pte`, with its debug data.
    model, args, kwargs, dynamic_shapes, bounds: what it was lowered from, as for `lower`; it is run on `args`. A model
        before its quantization will do: what has no value there is left out.
    backends: those that it was lowered for, in order of priority; by default those that the file has.
    backend_options: at load, as for `load`; data_path: external weights.
    tolerance: how far a result may be off, as a share of its largest value, as for `debug`.
    progress: is told what is done.

    The program is run once, with the values of all kernels. A backend that reports its own steps' values (cpu does) is
    compared by these. The calls of any other delegate are cut out and compiled once more with each value as a result,
    on torch's values of what the delegate reads.

    Raises `InvalidArgument` for a program without debug data, or of another model; what `lower` raises for a model that
    cannot be exported; and what loading and running raise.
    """
    started = progress or (lambda _: None)
    source = _Source.of(program, backends, backend_options, data_path)
    requests = export_requests(model, args, kwargs, dynamic_shapes)
    programs = {}
    for method, request in requests.items():
        source.require(method)
        started(f"{method}: exporting")
        programs[method] = with_inputs(export_method(method, request), request)
    gaps = [
        _gap_of(source, method, exported, tolerance, started) for method, exported in bounded(programs, bounds).items()
    ]
    return NumericGap(
        tuple(layer for each in gaps for layer in each.layers),
        tuple(output for each in gaps for output in each.outputs),
        tuple(note for each in gaps for note in each.notes),
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """The `.pte`: loaded, its debug data by method, what its backends are called in lowering, and options at load."""

    program: Program
    told: Mapping[str, DebugData]
    backends: Mapping[str, PluginSpec]
    options: BackendOptions

    @classmethod
    def of(
        cls,
        program: str | os.PathLike[str] | Buffer,
        backends: Sequence[PluginName] | None,
        options: BackendOptions | None,
        data_path: Sequence[str] | None,
    ) -> _Source:
        plugins, loaded = default_registry(), Program.load(program, data_path=data_path or None)
        asked = asked_to_report("intermediate_outputs", loaded.backend_ids, options or {}, plugins)
        return cls(loaded, debug_data_of(loaded.records), backend_names(loaded, backends, plugins), asked)

    def require(self, method: str) -> None:
        """Raise `InvalidArgument` without debug data of the method."""
        if not self.told.get(method, DebugData()).nodes:
            raise InvalidArgument(f"the program has no debug data of {method}; lower it without --no-debug-data")


def _gap_of(
    source: _Source,
    method: str,
    exported: ExportedProgram,
    tolerance: float | None,
    started: Callable[[str], object],
) -> NumericGap:
    """The rows of a method."""
    started(f"{method}: running torch")
    functional = functional_form(exported, [*source.backends.values()])
    share = QUANTIZED if tolerance is None and is_quantized(exported) else tolerance
    expected = ExpectedValues(method, Reference(functional), source.told[method], share)
    plan = source.program.plan(method)
    started(f"{method}: running the program")
    run = _run(source, method, exported.example_inputs)
    delegates = [*_delegates(plan, expected.told)]
    layers, notes, compared = [], [], set[int]()
    for handles, layer in _of_run(expected, run, delegates):
        layers.append(layer)
        compared.update(handles)
    for delegate in delegates:
        if 2 * len(expected.computing(delegate.handles & compared)) < len(expected.computing(delegate.handles)):
            started(f"{method}: cutting delegate {delegate.index}, {delegate.backend}")
            cut = _cut(expected, delegate, source)
            notes += [f"delegate {delegate.index}, {delegate.backend}: {cut}"] if isinstance(cut, str) else []
            known = {layer.name for layer in layers}
            layers += [] if isinstance(cut, str) else [layer for layer in cut if layer.name not in known]
            compared.update(layer.handle for layer in layers)
        notes += _without_values(expected, delegate, compared)
    layers.sort(key=lambda layer: expected.reference.node(layer.name))
    return NumericGap(
        with_beginnings(layers, expected.reads({layer.name for layer in layers})),
        tuple(_outputs(expected, run)),
        tuple(notes),
    )


def backend_names(
    program: Program, named: Sequence[PluginName] | None, plugins: PluginRegistry
) -> dict[str, PluginSpec]:
    """By backend id, the partitioner that is meant, with options if it was named with some."""
    ids = program.backend_ids
    if named is not None:
        specs = [spec for spec in read_plugins("backends", named) if isinstance(spec, PluginSpec)]
        return {next(iter(by_backend_id({spec.name: {}}, ids, plugins))): spec for spec in specs}
    chosen = {}
    for backend_id in sorted(ids):
        distribution = plugins.find("backends", backend_id).distribution
        names = [offer.name for offer in plugins.offers("partitioners") if offer.distribution == distribution]
        if len(names) > 1:
            names = [name for name in names if _lowers_for(backend_id, name, plugins)] or names
        if len(names) != 1:
            raise InvalidArgument(
                f"{backend_id} of {distribution} is lowered for as {', '.join(names) or 'nothing'}: say which, with its"
                " options: backends=[…], --backends …"
            )
        chosen[backend_id] = PluginSpec(names[0])
    return chosen


def _lowers_for(backend_id: str, name: str, plugins: PluginRegistry) -> bool:
    """Whether a partitioner says, without options, that its delegates are this backend's."""
    try:
        partitioner = plugins.create("partitioners", name, {})
    except DelegraphError:  # it cannot be made without options
        return False
    return getattr(getattr(partitioner, "delegation_spec", None), "backend_id", None) == backend_id


# ---- the run -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Run:
    """The values of a run: of kernels' calls by instruction, of delegates' steps by instruction and id, and results."""

    written: Mapping[int, Value]
    steps: Mapping[tuple[int, int | str], Value]
    results: Value


def _run(source: _Source, method: str, inputs: Any) -> _Run:
    tracer = EventTracer(DebugLevel.INTERMEDIATE_OUTPUTS)
    module = Module(source.program, method, event_tracer=tracer, backend_options=source.options)
    args, kwargs = inputs or ((), {})
    results = module(*args, **kwargs)
    (block,) = [block for block in tracer.take_blocks() if block.name == EXECUTE]
    written: dict[int, list[torch.Tensor]] = {}
    steps: dict[tuple[int, int | str], list[torch.Tensor]] = {}
    for event in block.debug_events:
        number, step = event.instruction, event.delegate_debug_id
        if event.chain == 0:
            values = written.setdefault(number, []) if step is None else steps.setdefault((number, step), [])
            values += _as_tensors(event.value)
    return _Run(written, steps, _as_tensors(results))


def _as_tensors(value: object) -> list[torch.Tensor]:
    return [leaf for leaf in to_torch(pytree.tree_leaves(value)) if isinstance(leaf, torch.Tensor)]


def _delegates(plan: ExecutionPlan, told: DebugData) -> Iterator[Delegate]:
    for number, instruction in enumerate(plan.chains[0].instructions):
        if isinstance(instruction, DelegateCall):
            index = instruction.delegate_index
            yield Delegate(index, plan.delegates[index].id, number, frozenset(told.instructions.get(number, ())))


def _of_run(
    expected: ExpectedValues, run: _Run, called: Sequence[Delegate]
) -> Iterator[tuple[Sequence[int], LayerGap]]:
    """The rows of kernels, and of steps that backends reported, with the handles of what is computed in each. Several
    with a handle: the last has its value."""
    delegates = {delegate.instruction: delegate for delegate in called}
    values: dict[int, tuple[Sequence[int], Value, Delegate | None]] = {}
    for number, value in run.written.items():
        handles = expected.told.instructions.get(number, ())
        if handles and number not in delegates:
            values[handles[-1]] = handles, value, None
    for (number, step), value in run.steps.items():
        delegate = delegates.get(number)
        handles = expected.told.delegates[delegate.index].get(step, ()) if delegate else ()
        if handles:
            values[handles[-1]] = handles, value, delegate
    for told, value, by in values.values():
        layer = expected.layer(told, value, by)
        if layer is not None:
            yield told, layer


def _without_values(expected: ExpectedValues, delegate: Delegate, compared: Collection[int]) -> Iterator[str]:
    """The note that names the modules of a delegate in which nothing could be compared."""
    modules = {
        kind: dict.fromkeys(expected.told.nodes[handle].module for handle in expected.computing(handles))
        for kind, handles in (("all", delegate.handles), ("compared", delegate.handles & {*compared}))
    }
    missing = [module for module in modules["all"] if module and module not in modules["compared"]]
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        named = ", ".join(missing[:_NAMED])
        yield f"delegate {delegate.index}, {delegate.backend}: it tells no value of {named}{more}"


_NAMED: Final = 8
"""Modules in a note."""


def _outputs(expected: ExpectedValues, run: _Run) -> list[LayerGap]:
    results = [value for value in expected.reference.whole().expected if value is not None]
    return [
        gap(
            expected.method, f"output {position}", [actual], [value], expected.share,
            handle=0, operator="", module="", line="", delegate=None, backend="", alone=False,
        )
        for position, (actual, value) in enumerate(zip(run.results, results, strict=True))
    ]  # fmt: skip


# ---- delegates that report nothing ---------------------------------------------------------------------------------


def _cut(expected: ExpectedValues, delegate: Delegate, source: _Source) -> list[LayerGap] | str:
    """The rows of a delegate's calls, compiled with each value as a result; or why there are none."""
    case = expected.reference.part(expected.calls_in(delegate.handles), tapped=True)
    if case is None:
        return "none of its calls is in the model"
    try:
        backends = [source.backends[delegate.backend]]
        program = compiled(case.program, backends)
        if isinstance(program, Verdict):
            return f"it refuses to compile with each value as a result: {program.said}"
        taken = {call for partition in prepared(case.program, backends)[1] for call in partition.calls}
        if not taken:
            return "with each value as a result, its partitioner takes none of its calls"
        options = {name: own for name, own in source.options.items() if name == delegate.backend}
        results = load(program, backend_options=options)(*(case.program.example_inputs or ((), {}))[0])
    except Exception as error:  # of a plug-in
        return f"with each value as a result it fails: {cause_of(error)}"
    by_call: dict[str, list[torch.Tensor]] = {}
    for name, value in zip(case.outputs, _as_tensors(results), strict=True):
        by_call.setdefault(expected.call_of(name), []).append(value)
    handles = {name: handle for handle in delegate.handles for name in expected.calls_in([handle])}
    layers = (
        expected.layer([handles[name]], value, delegate, alone=name)
        for name, value in by_call.items()
        if name in handles and name in taken
    )
    return [layer for layer in layers if layer is not None]
