"""`Lowering` -> `Lowering`: what flows through the stages, what a stage is, and who is told of it (`pipeline.py`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Protocol

from torch._ops import OpOverload
from torch.export import ExportedProgram

from delegraph.aot.config import LoweringConfig
from delegraph.aot.delegation.compose import Delegated
from delegraph.aot.delegation.lowered_module import Compiled, with_blobs
from delegraph.aot.delegation.refusals import Refusal
from delegraph.aot.edge.dialects import AddedRule, Dialect
from delegraph.aot.emission.fallback import Fallback, Runners
from delegraph.aot.emission.manager import ExecutorchProgramManager
from delegraph.aot.emission.stages import EmissionRequest, EmittedProgram, PlannedProgram
from delegraph.aot.etrecord.record import ETRecord
from delegraph.aot.export import ExportRequest
from delegraph.aot.functional.decompose import Keep
from delegraph.aot.graph.signature import MethodGraph
from delegraph.aot.quantize.measurement.report import MethodQuantization
from delegraph.aot.quantize.request import QuantizationRequest
from delegraph.interfaces.graph_pass import GraphPass
from delegraph.interfaces.lowering import Partitioner
from delegraph.plugins.registry import PluginRegistry

__all__ = ["Lowering", "Stage", "StageWatcher"]


@dataclass(frozen=True, slots=True)
class Lowering:
    """The value that flows through the stages; each fills in or replaces its part.

    Mappings are by method; `partitioners` and `keeps` then by the name that reports use. `stages` and `rules` are those
    that plug-ins add. What stands under `emission` belongs to `settings` and to the stages from `passes` on.
    """

    plugins: PluginRegistry
    config: LoweringConfig
    methods: tuple[str, ...]
    requests: Mapping[str, ExportRequest] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    programs: Mapping[str, ExportedProgram] = field(default_factory=dict)
    quantization: Mapping[str, QuantizationRequest] = field(default_factory=dict)
    quantized: Mapping[str, MethodQuantization] = field(default_factory=dict)
    partitioners: Mapping[str, Mapping[str, Partitioner]] = field(default_factory=dict)
    keeps: Mapping[str, Mapping[str, Keep]] = field(default_factory=dict)
    transforms: Mapping[str, Sequence[GraphPass]] = field(default_factory=dict)
    delegated: Delegated = field(default_factory=lambda: Delegated({}))
    compiled: Compiled = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    etrecord: ETRecord | None = None
    stages: tuple[Stage, ...] = ()
    rules: tuple[AddedRule, ...] = ()

    # ---- emission
    request: EmissionRequest | None = None
    passes: Mapping[str, Sequence[GraphPass]] = field(default_factory=dict)
    prepared: Sequence[MethodGraph] = ()
    emitted: EmittedProgram | None = None
    planned: PlannedProgram | None = None
    runners: Runners = field(default_factory=dict)
    fallbacks: tuple[Fallback, ...] = ()
    result: ExecutorchProgramManager | None = None

    @property
    def kept_operators(self) -> frozenset[OpOverload]:
        """The operators that may stand whole for a backend's sake."""
        return frozenset(op for own in self.keeps.values() for keep in own.values() for op in keep)

    def with_programs(self, programs: Mapping[str, ExportedProgram]) -> Lowering:
        """The same with these programs in the place of those of their names."""
        return replace(self, programs=MappingProxyType({**self.programs, **programs}))

    def with_blobs(self, compiled: Compiled) -> Lowering:
        """The same with compiled delegates in the programs and partitions."""
        programs = {method: with_blobs(program, compiled) for method, program in self.programs.items()}
        return replace(self.with_programs(programs), delegated=self.delegated.with_blobs(compiled), compiled=compiled)


@dataclass(frozen=True, slots=True)
class Stage:
    """One step, run for each method by itself or, if not `by_method`, once for all.

    `requires` and `ensures` are dialects of the programs, checked before and behind it; where `keeps_whole`, operators
    that a backend asked for may still stand whole behind it. `after` or `before` says where one is added.
    """

    name: str
    run: Callable[[Lowering, Sequence[str]], Lowering]
    by_method: bool = False
    requires: Dialect | None = None
    ensures: Dialect | None = None
    keeps_whole: bool = False
    after: str = ""
    before: str = ""


class StageWatcher(Protocol):
    """Whoever is told of each stage: a progress bar, tools, dumps. `methods` are those that the stage runs for."""

    def started(self, stage: Stage, methods: Sequence[str], lowering: Lowering, remaining: Sequence[Stage]) -> None:
        """`stage` begins; `remaining` are the stages from it on."""

    def done(self, stage: Stage, methods: Sequence[str], lowering: Lowering, seconds: float) -> None:
        """`stage` has given `lowering`."""
