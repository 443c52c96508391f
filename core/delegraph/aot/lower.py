"""The whole way: `to_edge`, `to_edge_transform_and_lower`, the manager between the stages, and the one-call `lower`.

Each is some of the stages of `pipeline.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from time import perf_counter
from types import MappingProxyType
from typing import Self, TypeAlias

from torch.export import ExportedProgram

from delegraph.aot import pipeline
from delegraph.aot.additions import added_rules, added_stages
from delegraph.aot.arguments import unique_name
from delegraph.aot.config import EdgeCompileConfig, ExecutorchBackendConfig, Fallbacks, LoweringConfig, Passes
from delegraph.aot.delegation.backends import Backend, Backends, partitioners_by_method
from delegraph.aot.delegation.report import LoweringReport, make_report, suggestions
from delegraph.aot.emission.manager import ExecutorchProgramManager
from delegraph.aot.etrecord.record import ETRecord
from delegraph.aot.export import DynamicShapes, ExampleArguments, Model, export_requests, only_program
from delegraph.aot.export_checks import check_names
from delegraph.aot.graph.edit import copy_program
from delegraph.aot.graph.stated_bounds import bounded
from delegraph.aot.passes.named import passes_by_method
from delegraph.aot.progress import shown_progress
from delegraph.aot.quantize.request import CalibrationData, Quantizers, quantization_by_method
from delegraph.aot.stage import Lowering, StageWatcher
from delegraph.deprecation import former_parameter
from delegraph.errors import LoweringError
from delegraph.interfaces.memory_hierarchy import MemoryHierarchy
from delegraph.logs import Logger
from delegraph.notebook import folded
from delegraph.plugins.registry import PluginRegistry, default_registry
from delegraph.program.user_metadata import UserMetadata

__all__ = ["EdgeProgramManager", "Lowered", "lower", "to_edge", "to_edge_transform_and_lower"]

_log = Logger(__name__)

Programs: TypeAlias = "ExportedProgram | Mapping[str, ExportedProgram]"


class EdgeProgramManager:
    """Edge programs by method; each step gives a new manager (ExecuTorch `exir/program/_program.py`)."""

    def __init__(
        self,
        edge_programs: Programs,
        constant_methods: Mapping[str, object] | None = None,
        compile_config: EdgeCompileConfig | None = None,
        *,
        plugins: PluginRegistry | None = None,
    ) -> None:
        self._lowering = _lowering(edge_programs, constant_methods, compile_config, plugins)

    @classmethod
    def _of(cls, lowering: Lowering) -> Self:
        manager = cls.__new__(cls)
        manager._lowering = lowering
        return manager

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Programs, with their weights, are what can be edited; delegates are finished and shared."""
        programs = {method: deepcopy(program, memo) for method, program in self._lowering.programs.items()}
        return self._of(replace(self._lowering, programs=MappingProxyType(programs)))

    def __repr__(self) -> str:
        return f"EdgeProgramManager({self.report!r})"

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        return self.report._repr_html_()

    @property
    def methods(self) -> set[str]:
        """The names of the methods that have a graph."""
        return set(self._lowering.methods)

    @property
    def config_methods(self) -> set[str]:
        """The names of the methods that give a constant."""
        return set(self._lowering.config.constant_methods)

    @property
    def compile_config(self) -> EdgeCompileConfig:
        """How the edge programs were made."""
        return self._lowering.config.edge

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        """The edge program of one method. Raises `LoweringError` for a name that is not there."""
        try:
            return self._lowering.programs[method_name]
        except KeyError:
            known = ", ".join(sorted(self._lowering.methods))
            raise LoweringError(f"no method {method_name!r}; the methods are {known}") from None

    @property
    def _etrecord(self) -> ETRecord | None:
        """The programs before delegation, if `generate_etrecord` asked for them."""
        return self._lowering.etrecord

    @property
    def report(self) -> LoweringReport:
        """The report: which calls were delegated where, and why the rest were not."""
        return make_report(self._lowering.programs, self._lowering.delegated)

    def transform(self, passes: Passes, compile_config: EdgeCompileConfig | None = None) -> Self:
        """Run passes, on every method or by method name; the new manager has `compile_config`.

        Raises as `run_passes`.
        """
        transforms = passes_by_method("passes", passes, self._lowering.methods, self._lowering.plugins)
        edge = compile_config or self.compile_config
        rules = added_rules(edge.dialect_rules, self._lowering.plugins)
        config = replace(self._lowering.config, edge=edge)
        lowering = replace(self._lowering, config=config, transforms=transforms, rules=rules)
        done = pipeline.run(lowering, [pipeline.TRANSFORM])
        constants = self._lowering.config.constant_methods  # a pass may have added some
        return self._of(replace(done, config=replace(done.config, constant_methods=constants)))

    def add_constant_methods(self, methods: Mapping[str, object]) -> None:
        """Let the finished program have methods that return these constants; a pass of `transform` may add some."""
        config = self._lowering.config
        constants = {**config.constant_methods, **methods}
        self._lowering = replace(self._lowering, config=replace(config, constant_methods=constants))

    def to_backend(self, partitioner: Backends) -> Self:
        """Delegate what the partitioners take, in order of priority; by method name where a mapping is given."""
        named = partitioners_by_method("partitioner", partitioner, self._lowering.methods, self._lowering.plugins)
        asked = {name for seen in self._lowering.delegated.seen.values() for name in seen}
        renamed = {m: {unique_name(name, asked): chosen for name, chosen in own.items()} for m, own in named.items()}
        lowering = replace(self._lowering, partitioners=renamed)
        _, done = pipeline.run_to_blobs(lowering, [pipeline.COMPILE])
        return self._of(done)

    def to_executorch(self, config: ExecutorchBackendConfig | None = None) -> ExecutorchProgramManager:
        """Choose out variants, plan memory and emit. Raises `LoweringError` for what no runtime could run."""
        settings = replace(self._lowering.config, executorch=config or ExecutorchBackendConfig())
        stages = [pipeline.SETTINGS, *pipeline.EXECUTORCH, pipeline.FALLBACK, pipeline.ASSEMBLE]
        return _result(pipeline.run(replace(self._lowering, config=settings), stages))


@former_parameter("registry", "plugins", goes="2.0")
def to_edge(
    programs: Programs,
    constant_methods: Mapping[str, object] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
    *,
    bounds: Mapping[str, int] | None = None,
    plugins: PluginRegistry | None = None,
) -> EdgeProgramManager:
    """Bring exported programs to the edge dialect, everything decomposed to core ATen.

    `constant_methods` become methods that return a constant. With `generate_etrecord` what `to_executorch` gives
    has an ETRecord (`get_etrecord`). `bounds` are as for `lower`. Raises `VerificationError` and `LoweringError`.
    """
    lowering = _lowering(programs, constant_methods, compile_config, plugins, bounds)
    edge = pipeline.run(lowering, pipeline.EDGE)
    return EdgeProgramManager._of(_recording(lowering, edge) if generate_etrecord else edge)


@former_parameter("registry", "plugins", goes="2.0")
def to_edge_transform_and_lower(
    programs: Programs,
    transform_passes: Passes | None = None,
    partitioner: Backends = None,
    constant_methods: Mapping[str, object] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    generate_etrecord: bool = False,
    *,
    bounds: Mapping[str, int] | None = None,
    plugins: PluginRegistry | None = None,
) -> EdgeProgramManager:
    """Like `to_edge`, then passes, then delegation; operators that a partitioner asks for stay whole for it.

    A kept operator that nobody took is decomposed afterwards. Raises as `to_edge` and `EdgeProgramManager.to_backend`.
    """
    lowering = _lowering(programs, constant_methods, compile_config, plugins, bounds)
    named = partitioners_by_method("partitioner", partitioner, lowering.methods, lowering.plugins)
    transforms = passes_by_method("transform_passes", transform_passes, lowering.methods, lowering.plugins)
    asked = replace(lowering, transforms=transforms, partitioners=named)
    edge = pipeline.run(asked, pipeline.EDGE)
    edge = _recording(lowering, edge) if generate_etrecord else edge
    edge = pipeline.run(edge, [pipeline.TRANSFORM])
    if edge.etrecord is not None and any(transforms.values()):
        edge.etrecord.add_extra_export_modules({"edge_after_transform": EdgeProgramManager._of(_snapshot(edge))})
    _, done = pipeline.run_to_blobs(edge, [pipeline.COMPILE])
    return EdgeProgramManager._of(done)


def _recording(exported: Lowering, edge: Lowering) -> Lowering:
    """`edge` with an ETRecord of the programs up to here as they are now, whoever edits a graph of them later."""
    record = ETRecord()
    record.add_exported_program(exported.programs)
    record.add_edge_dialect_program(EdgeProgramManager._of(_snapshot(edge)))
    return replace(edge, etrecord=record)


def _snapshot(lowering: Lowering) -> Lowering:
    copies = {method: copy_program(program) for method, program in lowering.programs.items()}
    return replace(lowering, programs=MappingProxyType(copies))


def _lowering(
    programs: Programs,
    constant_methods: Mapping[str, object] | None,
    compile_config: EdgeCompileConfig | None,
    plugins: PluginRegistry | None,
    bounds: Mapping[str, int] | None = None,
) -> Lowering:
    by_method = dict(programs) if isinstance(programs, Mapping) else {"forward": programs}
    check_names(by_method)
    by_method = {method: only_program(program) for method, program in by_method.items()}
    for method, program in by_method.items():
        if not isinstance(program, ExportedProgram):
            raise LoweringError(f"method {method!r}: expected an ExportedProgram, not {type(program).__name__}")
    config = LoweringConfig(edge=compile_config or EdgeCompileConfig(), constant_methods=constant_methods or {})
    plugins = plugins or default_registry()
    rules = added_rules(config.edge.dialect_rules, plugins)
    return Lowering(plugins, config, tuple(by_method), programs=bounded(by_method, bounds), rules=rules)


def _result(lowering: Lowering) -> ExecutorchProgramManager:
    assert lowering.result is not None
    return lowering.result


# ---- the one call ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lowered:
    """A finished program: `save` it, take its `bytes(...)`, read its `report`."""

    program: ExecutorchProgramManager
    edge: EdgeProgramManager
    report: LoweringReport

    def __repr__(self) -> str:
        return f"Lowered({self.report!r}, {self.program!r})"

    def _repr_html_(self) -> str:
        """HTML for notebooks."""
        return self.report._repr_html_() + folded("program", self.program._repr_html_())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the `.pte`, whole or not at all; `.ptd` files of external constants go beside it."""
        self.program.save(path)

    def __bytes__(self) -> bytes:
        return bytes(self.program.buffer)


@former_parameter("registry", "plugins", goes="2.0")
def lower(
    model: Model,
    args: ExampleArguments = None,
    kwargs: Mapping[str, object] | None = None,
    *,
    backends: Sequence[Backend] | Mapping[str, Sequence[Backend]] | None = None,
    quantizers: Quantizers | None = None,
    calibration_data: CalibrationData | None = None,
    dynamic_shapes: DynamicShapes = None,
    bounds: Mapping[str, int] | None = None,
    config: LoweringConfig | ExecutorchBackendConfig | EdgeCompileConfig | None = None,
    memory: MemoryHierarchy | str | os.PathLike[str] | None = None,
    fallback: Fallbacks = None,
    metadata: UserMetadata | None = None,
    plugins: PluginRegistry | None = None,
    prefer: Mapping[str, str] | None = None,
    progress: bool | StageWatcher = False,
) -> Lowered:
    """Lower a model onto backends, in order of priority; what none of them takes runs on kernel libraries.

        lowered = delegraph.lower(model.eval(), (torch.randn(1, 3, 224, 224),), backends=["cpu"])
        print(lowered.report)
        lowered.save("model.pte")

    model: an nn.Module, an ExportedProgram, or a mapping of either by method name.
    args: example arguments of the module: by position, or by name as a tokenizer gives them, or a lone tensor. The
        program takes tensors of these shapes and dtypes. By method name where `model` is.
    kwargs: example arguments by name.
    backends: in order of priority, names of installed partitioners (`"npu"`, `"npu{optimize=size}"`,
        `("npu", {"optimize": "size"})`), or partitioners; or such lists by method name.
    quantizers: in order of priority, names of installed ones, or torchao's; they quantize the model as `quantize` does.
    calibration_data: the batches that quantizers need, as for `quantize`.
    dynamic_shapes: which dims vary, as `torch.export.export` takes them, or `{0: Dim("batch", max=16)}` for this dim of
        every tensor; each needs an upper bound.
    bounds: the largest sizes, where they depend on values, that a line of code makes, `{"library.py:120": 1024}`, if
        the model does not say so itself with `torch._check`. A run that would exceed one fails.
    config: a `LoweringConfig`, or one of its two parts alone.
    memory: the device's memories, or the TOML file that describes them, for `ExecutorchBackendConfig.memory`.
    fallback: what runs the graph of a delegate on a device where its backend cannot, `"kernels"` or a backend's name,
        for `ExecutorchBackendConfig.fallback`. The report says what it costs.
    metadata: what the file says of the model, for `ExecutorchBackendConfig.metadata`: `{"author": "Ada", "labels":
        ["cat", "dog"]}`. `inspect` shows it, `MethodMeta.user_metadata` reads it.
    plugins: the plug-ins to use instead of the installed ones.
    prefer: which distribution is meant where two offer one name, `{"partitioners:npu": "acme-npu"}`.
    progress: show a progress bar on standard error, or tell a watcher of each stage.

    Whatever can be refused is refused before a backend's compiler runs. Raises `LoweringError` with the node and its
    line of user code, or `PluginError`.
    """
    start = perf_counter()
    plugins, settings = (plugins or default_registry()).preferring(prefer or {}), _settings(config)
    if isinstance(backends, str):
        raise LoweringError(f"backends is a list, in order of priority: write backends=[{backends!r}]")
    if memory is not None:
        settings = replace(settings, executorch=replace(settings.executorch, memory=memory))
    if fallback is not None:
        settings = replace(settings, executorch=replace(settings.executorch, fallback=fallback))
    if metadata is not None:
        settings = replace(settings, executorch=replace(settings.executorch, metadata=metadata))
    requests = export_requests(model, args, kwargs, dynamic_shapes)
    lowering = Lowering(
        plugins,
        settings,
        tuple(requests),
        requests=requests,
        bounds=bounds or {},
        quantization=quantization_by_method(quantizers, calibration_data, list(requests), plugins),
        partitioners=partitioners_by_method("backends", backends, list(requests), plugins),
        transforms=passes_by_method("transform_passes", settings.transform_passes, list(requests), plugins),
        stages=added_stages(settings.stages, pipeline.ALL, plugins),
        rules=added_rules(settings.edge.dialect_rules, plugins),
    )
    with shown_progress(progress, pipeline.arranged(pipeline.ALL, lowering.stages)) as watchers:
        edge_programs = pipeline.run(lowering, pipeline.TO_PARTITION, watchers)
        delegated, done = pipeline.run_to_blobs(edge_programs, pipeline.FROM_KERNELS, watchers)
    edge, result = EdgeProgramManager._of(delegated.with_blobs(done.compiled)), _result(done)
    helpers = () if backends else tuple(suggestions(delegated.programs, plugins))
    report = replace(edge.report, suggestions=helpers, fallbacks=result.fallbacks)
    _log.info("lowered in %.3f s: %r", perf_counter() - start, report)
    return Lowered(result, edge, report)


def _settings(config: object) -> LoweringConfig:
    if isinstance(config, ExecutorchBackendConfig):
        return LoweringConfig(executorch=config)
    if isinstance(config, EdgeCompileConfig):
        return LoweringConfig(edge=config)
    if config is None or isinstance(config, LoweringConfig):
        return config or LoweringConfig()
    raise LoweringError(
        f"config is {type(config).__name__}; it takes a LoweringConfig, or an ExecutorchBackendConfig or"
        " EdgeCompileConfig alone"
    )
