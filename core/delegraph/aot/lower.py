"""The whole way: `to_edge`, `to_edge_transform_and_lower`, the manager between the stages, and the one-call `lower`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch.export import ExportedProgram

from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.delegation.compose import Delegated, compile_partitions, delegate, named_partitioners, unique_name
from delegraph.aot.delegation.report import LoweringReport, make_report
from delegraph.aot.edge.dialects import BACKEND, verify
from delegraph.aot.edge.edge_program import (
    EdgeCompileConfig,
    any_keeps,
    decompose_leftovers,
    kept_whole,
    make_edge_program,
)
from delegraph.aot.emission.manager import ExecutorchProgramManager
from delegraph.aot.emission.to_executorch import to_executorch
from delegraph.aot.export import Model, export_methods
from delegraph.aot.functional.decompose import Keep
from delegraph.aot.passes import GraphPass, run_passes
from delegraph.errors import LoweringError
from delegraph.interfaces.lowering import Partitioner
from delegraph.plugins.registry import PluginRegistry, default_registry

__all__ = ["EdgeProgramManager", "Lowered", "LoweringConfig", "lower", "to_edge", "to_edge_transform_and_lower"]

Programs: TypeAlias = "ExportedProgram | Mapping[str, ExportedProgram]"
Passes: TypeAlias = "Sequence[GraphPass] | Mapping[str, Sequence[GraphPass]] | None"
Partitioners: TypeAlias = "Partitioner | Sequence[Partitioner] | Mapping[str, Partitioner | Sequence[Partitioner]]"


class EdgeProgramManager:
    """Edge programs by method; each step gives a new manager (ExecuTorch `exir/program/_program.py`)."""

    def __init__(
        self,
        edge_programs: Mapping[str, ExportedProgram],
        constant_methods: Mapping[str, Any] | None = None,
        compile_config: EdgeCompileConfig | None = None,
        *,
        delegated: Delegated | None = None,
        plugins: PluginRegistry | None = None,
    ) -> None:
        self._programs = dict(edge_programs)
        self._constant_methods = dict(constant_methods or {})
        self._config = compile_config or EdgeCompileConfig()
        self._delegated = delegated or Delegated(self._programs)
        self._plugins = plugins or default_registry()

    @property
    def methods(self) -> set[str]:
        """The names of the methods that have a graph."""
        return set(self._programs)

    def exported_program(self, method_name: str = "forward") -> ExportedProgram:
        """The edge program of one method. Raises `LoweringError` for a name that is not there."""
        try:
            return self._programs[method_name]
        except KeyError:
            known = ", ".join(sorted(self._programs))
            raise LoweringError(f"no method {method_name!r}; the methods are {known}") from None

    @property
    def report(self) -> LoweringReport:
        """What was delegated where, and why the rest was not."""
        return make_report(self._programs, self._delegated, self._plugins)

    def transform(self, passes: Passes) -> EdgeProgramManager:
        """Run passes, on every method or by method name. Raises as `run_passes`."""
        programs = {
            method: run_passes(program, _for_method(passes, method), BACKEND)
            for method, program in self._programs.items()
        }
        return self._with(programs, self._delegated)

    def to_backend(self, partitioner: Partitioners) -> EdgeProgramManager:
        """Delegate what the partitioners take, in order of priority; by method name where a mapping is given."""
        if not isinstance(partitioner, Mapping):
            return self._delegate(self._programs, _named(partitioner))
        manager = self
        for method, own in partitioner.items():
            manager = manager._delegate({method: manager.exported_program(method)}, _named(own))
        return manager

    def to_executorch(self, config: ExecutorchBackendConfig | None = None) -> ExecutorchProgramManager:
        """Choose out variants, plan memory and emit. Raises `LoweringError` for what no runtime could run."""
        return to_executorch(self._programs, config, self._constant_methods, self._plugins)

    def _delegate(
        self,
        programs: Mapping[str, ExportedProgram],
        partitioners: Mapping[str, Partitioner],
        keeps: Mapping[str, Mapping[str, Keep]] | None = None,
    ) -> EdgeProgramManager:
        done = delegate(programs, partitioners, keeps)
        compile_partitions(done, self._plugins)
        kept = {op for own in (keeps or {}).values() for keep in own.values() for op in keep}
        lowered = {m: decompose_leftovers(p, kept, self._config) for m, p in done.programs.items()}
        if self._config._check_ir_validity:
            for program in lowered.values():
                verify(program, BACKEND, self._config.allowed_ops)
        return self._with({**self._programs, **lowered}, _merged(self._delegated, done))

    def _with(self, programs: Mapping[str, ExportedProgram], delegated: Delegated) -> EdgeProgramManager:
        return EdgeProgramManager(
            programs, self._constant_methods, self._config, delegated=delegated, plugins=self._plugins
        )


def to_edge(
    programs: Programs,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    *,
    plugins: PluginRegistry | None = None,
) -> EdgeProgramManager:
    """Bring exported programs to the edge dialect, everything decomposed to core ATen.

    `constant_methods` become methods that return a constant. Raises `VerificationError` and `LoweringError`.
    """
    config = compile_config or EdgeCompileConfig()
    edge = {method: make_edge_program(program, {}, config) for method, program in _by_method(programs).items()}
    return EdgeProgramManager(edge, constant_methods, config, plugins=plugins)


def to_edge_transform_and_lower(
    programs: Programs,
    transform_passes: Passes = None,
    partitioner: Partitioners | None = None,
    constant_methods: Mapping[str, Any] | None = None,
    compile_config: EdgeCompileConfig | None = None,
    *,
    plugins: PluginRegistry | None = None,
) -> EdgeProgramManager:
    """Like `to_edge`, then passes, then delegation; operators that a partitioner asks for stay whole on the way.

    A kept operator that nobody took is decomposed afterwards. Raises as `to_edge` and `EdgeProgramManager.to_backend`.
    """
    exported = _by_method(programs)
    if isinstance(partitioner, Mapping):
        named = {method: _named(partitioner.get(method)) for method in exported}
    else:
        shared = _named(partitioner)
        named = dict.fromkeys(exported, shared)
    return _transform_and_lower(
        exported, transform_passes, named, constant_methods, compile_config, plugins or default_registry()
    )


def _transform_and_lower(
    exported: Mapping[str, ExportedProgram],
    transform_passes: Passes,
    partitioners: Mapping[str, Mapping[str, Partitioner]],
    constant_methods: Mapping[str, Any] | None,
    compile_config: EdgeCompileConfig | None,
    plugins: PluginRegistry,
) -> EdgeProgramManager:
    """`partitioners`: by method, then by the name that reports use."""
    config = compile_config or EdgeCompileConfig()
    edge: dict[str, ExportedProgram] = {}
    keeps: dict[str, dict[str, Keep]] = {}
    for method, program in exported.items():
        keeps[method] = {name: kept_whole(program, one, name) for name, one in partitioners[method].items()}
        keep = any_keeps(keeps[method].values())
        with _timed("edge", method, plugins):
            whole = make_edge_program(program, keep, config)
            edge[method] = run_passes(whole, _for_method(transform_passes, method), BACKEND, keep)
    manager = EdgeProgramManager(edge, constant_methods, config, plugins=plugins)
    for methods in _that_share(partitioners):
        with _timed("delegate", ", ".join(methods), plugins):
            programs = {method: edge[method] for method in methods}
            manager = manager._delegate(programs, partitioners[methods[0]], keeps)
    return manager


def _that_share(partitioners: Mapping[str, Mapping[str, Partitioner]]) -> list[list[str]]:
    """Groups of methods with the same partitioners: each group is delegated together, so that it can share weights."""
    groups: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for method, own in partitioners.items():
        if own:
            groups.setdefault(tuple((name, id(one)) for name, one in own.items()), []).append(method)
    return list(groups.values())


# ---- the one call ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LoweringConfig:
    """Everything that `lower` leaves at its default: the stages' own configurations and the user's passes."""

    edge: EdgeCompileConfig = field(default_factory=EdgeCompileConfig)
    executorch: ExecutorchBackendConfig = field(default_factory=ExecutorchBackendConfig)
    transform_passes: Passes = None
    constant_methods: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A finished program: `save` it, take its `bytes(...)`, read its `report`."""

    program: ExecutorchProgramManager
    edge: EdgeProgramManager
    report: LoweringReport

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the `.pte`, whole or not at all; `.ptd` files of external constants go beside it."""
        self.program.save(path)

    def __bytes__(self) -> bytes:
        return bytes(self.program.buffer)


def lower(
    model: Model,
    args: Sequence[Any] | Mapping[str, Sequence[Any]] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    backends: Sequence[str | Partitioner] = (),
    dynamic_shapes: Any = None,
    config: LoweringConfig | ExecutorchBackendConfig | None = None,
    plugins: PluginRegistry | None = None,
) -> Lowered:
    """Lower a model onto backends, in order of priority; what none of them takes runs on kernel libraries.

    model: an nn.Module (exported here with `args`, `kwargs` and `dynamic_shapes`), an ExportedProgram, or a mapping of
    either by method name. backends: names of installed partitioners, or partitioners. config: a `LoweringConfig`, or an
    `ExecutorchBackendConfig` alone. plugins: the plug-ins to use instead of the installed ones.

    Raises `LoweringError` with the node and its line of user code, or `PluginError`.
    """
    if isinstance(config, ExecutorchBackendConfig):
        config = LoweringConfig(executorch=config)
    config = config or LoweringConfig()
    plugins = plugins or default_registry()
    partitioners = _create(backends, plugins)
    with _timed("export", "*", plugins):
        programs = export_methods(model, args, kwargs, dynamic_shapes)
    named = dict.fromkeys(programs, partitioners)
    edge = _transform_and_lower(programs, config.transform_passes, named, config.constant_methods, config.edge, plugins)
    report = edge.report
    plugins.notify("partition_done", report=report)
    with _timed("emit", "*", plugins):
        program = edge.to_executorch(config.executorch)
    return Lowered(program, edge, report)


def _create(backends: Sequence[str | Partitioner], plugins: PluginRegistry) -> dict[str, Partitioner]:
    """Partitioners by the name under which the report speaks of them."""
    if isinstance(backends, (str, Partitioner)):
        raise LoweringError(f"backends is a list: write backends=[{backends!r}]")
    created: dict[str, Partitioner] = {}
    for backend in backends:
        if isinstance(backend, str):
            created[backend] = plugins.create("partitioners", backend)
        else:
            created[unique_name(type(backend).__name__, created)] = backend
    return created


def _named(partitioners: Any) -> dict[str, Partitioner]:
    return named_partitioners([partitioners] if isinstance(partitioners, Partitioner) else partitioners or ())


def _for_method(value: Any, method: str) -> Any:
    """The part of an argument that concerns one method."""
    return (value.get(method) if isinstance(value, Mapping) else value) or ()


def _by_method(programs: Programs) -> dict[str, ExportedProgram]:
    return dict(programs) if isinstance(programs, Mapping) else {"forward": programs}


def _merged(one: Delegated, other: Delegated) -> Delegated:
    """What two steps of delegation did, as one."""
    return Delegated(
        {**one.programs, **other.programs},
        {m: [*one.partitions.get(m, ()), *other.partitions.get(m, ())] for m in {**one.partitions, **other.partitions}},
        {m: {**one.seen.get(m, {}), **other.seen.get(m, {})} for m in {**one.seen, **other.seen}},
    )


@contextmanager
def _timed(stage: str, method: str, plugins: PluginRegistry) -> Iterator[None]:
    """Tell the installed tools how long a stage took."""
    start = time.perf_counter()
    yield
    plugins.notify("lowering_stage_done", stage=stage, method=method, seconds=time.perf_counter() - start)
