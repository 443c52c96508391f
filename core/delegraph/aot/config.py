"""The options of lowering: how edge programs are made, how they become a file, and both together.

Names of the first two are ExecuTorch's (`exir/capture/_config.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, TypeAlias

from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.passes.infra.pass_manager import PassManager

from delegraph.aot.memory_planning import MemoryPlanningPass
from delegraph.interfaces.graph_pass import GraphPass
from delegraph.interfaces.kernel import KernelLibraryInterface
from delegraph.interfaces.lowering import Partitioner
from delegraph.interfaces.memory_hierarchy import MemoryHierarchy
from delegraph.interfaces.memory_planner import MemoryPlanner
from delegraph.interfaces.pipeline import DialectRule, PipelineStage
from delegraph.plugins.plugin_spec import PluginName
from delegraph.program.files.serialize import SerializationConfig
from delegraph.program.user_metadata import UserMetadata

__all__ = [
    "DEFAULT_EXTERNAL_TAG",
    "EdgeCompileConfig",
    "ExecutorchBackendConfig",
    "ExternalConstants",
    "Fallbacks",
    "LoweringConfig",
    "Pass",
    "Passes",
    "PropagateDeviceConfig",
]

DEFAULT_EXTERNAL_TAG = "_default_external_constant"
"""The `.ptd` that `external_constants=True` writes (ExecuTorch `exir/tensor.py`)."""

MEMORY_OPTIONS = ("alloc_graph_input", "alloc_graph_output", "alloc_mutable_buffers", "share_mutable_buffers", "memory")
"""Options of a `MemoryPlanningPass` that may stand in an `ExecutorchBackendConfig` itself."""

ExternalConstants: TypeAlias = "bool | Mapping[str, str] | Callable[[Node], str | None]"
"""All weights or none; the name of a `.ptd` by patterns of the weights' names; or such a name, or None, of a
placeholder."""

Pass: TypeAlias = "GraphPass | PluginName"
"""A pass, or the name of an installed one."""

Fallbacks: TypeAlias = "PluginName | Partitioner | Sequence[PluginName | Partitioner] | None"
"""The runner of delegates where their backend cannot: "kernels", or a backend as in `backends=[…]`; or several."""

Passes: TypeAlias = "Sequence[Pass] | Mapping[str, Sequence[Pass]] | PassManager"
"""Passes in order, for all methods or by method name; or torch's pass manager, which is one pass."""


@dataclass(frozen=True, slots=True)
class EdgeCompileConfig:
    """How edge programs are made.

    `preserve_ops` stay whole whatever the backends ask for (each then needs a kernel or a backend);
    `_core_aten_ops_exception_list` are admitted although they are not core (None: there are none); without
    `_check_ir_validity` nothing is verified; with `_skip_dim_order` copies say their layout by `memory_format`.
    `dialect_rules` are what programs must satisfy besides: rules of plug-ins, by name as passes are, or objects.
    """

    _check_ir_validity: bool = True
    _skip_dim_order: bool = False
    _core_aten_ops_exception_list: Sequence[OpOverload] | None = ()
    preserve_ops: Sequence[OpOverload] = ()
    dialect_rules: Sequence[DialectRule | PluginName] = ()
    allowed_ops: frozenset[OpOverload] = field(init=False)

    def __post_init__(self) -> None:
        admitted = (*self.preserve_ops, *(self._core_aten_ops_exception_list or ()))
        object.__setattr__(self, "allowed_ops", frozenset(admitted))


@dataclass(frozen=True, slots=True)
class PropagateDeviceConfig:
    """Which copies to and from devices methods do without: all of them, or by method name.

    `skip_h2d_for_method_inputs`: inputs that go to a delegate for a device come there. `skip_d2h_for_method_outputs`:
    what such a delegate gives and the method returns stays there. See `PropagateDevicePass`.
    """

    skip_h2d_for_method_inputs: bool | Mapping[str, bool] = False
    skip_d2h_for_method_outputs: bool | Mapping[str, bool] = False

    def skipped(self, method: str) -> tuple[bool, bool]:
        """For one method: the copies of inputs, and those of outputs."""
        inputs, outputs = self.skip_h2d_for_method_inputs, self.skip_d2h_for_method_outputs
        return (
            inputs.get(method, False) if isinstance(inputs, Mapping) else inputs,
            outputs.get(method, False) if isinstance(outputs, Mapping) else outputs,
        )


@dataclass(frozen=True, slots=True)
class ExecutorchBackendConfig:
    """Options of `to_executorch`.

    `passes` run on each edge program first, for all methods or by method name. `memory_planning_pass` says how memory
    is planned, for all methods or by method name; or its options stand here: `memory_planner` (the name of an installed
    planner or a function), `alloc_graph_input`, `alloc_graph_output`, `alloc_mutable_buffers`, `share_mutable_buffers`
    and `memory` mean what they mean there. `emit_mutable_buffer_names` keeps the buffers' names in the file; buffers
    without planned memory have theirs in any case.
    `external_constants` moves the model's weights, but no constants that its code has in it, to `.ptd` files: all
    of them (True), those whose qualified names match a pattern (`{"*.lora_*": "adapter", "*": "base"}`: the first
    that matches gives the file's name), or those for whose placeholders a function gives one;
    `external_mutable_weights` those that the program computes a gradient of. `do_const_prop` computes what depends
    on weights alone now. `remove_view_copy` lets static views share memory. `emit_stacktrace` keeps the user's
    source lines in the file; `emit_debug_data` keeps what instructions and delegates' steps come from, by operator,
    module, file and line (`program/debug_data.py`), compressed.
    `kernels` are the libraries that the device will have, or names of installed ones (None: what is
    installed), and `check_kernels=False` leaves unchecked whether they can run the program.
    Alignments are in bytes; None is the format's own (16).
    `enable_non_cpu_memory_planning` puts copies around delegates that are for a device and plans that device's memory
    by itself; `propagate_device_config`, for all methods or by method name, says which copies are left out. Without it
    everything lies in the CPU's memory.
    `overlap_delegates` plans memory so that independent delegates can be at work together, where their backends submit
    them (`BackendDetails.submits`); it may take more of it (`MemoryReport.overlap_bytes`).
    `fallback` keeps the graph of each delegate beside its blob, for devices where its backend cannot run: `"kernels"`,
    or a backend that takes what it can of it (`"cpu"`), or several of these in the order of preference.
    `metadata` is what the file says of the model in the user's words, by name: texts, finite numbers, truth values and
    lists of these, up to 1 MiB as JSON (`MethodMeta.user_metadata`).
    """

    passes: Passes = ()
    memory_planning_pass: MemoryPlanningPass | Mapping[str, MemoryPlanningPass] | None = None
    memory_planner: str | MemoryPlanner = "greedy"
    alloc_graph_input: bool = True
    alloc_graph_output: bool = True
    alloc_mutable_buffers: bool = True
    share_mutable_buffers: bool = False
    memory: MemoryHierarchy | str | PathLike[str] | None = None
    segment_alignment: int = 128
    constant_tensor_alignment: int | None = None
    delegate_alignment: int | None = None
    extract_delegate_segments: bool = True
    external_constants: ExternalConstants = False
    external_mutable_weights: bool = False
    emit_mutable_buffer_names: bool = True
    emit_stacktrace: bool = False
    emit_debug_data: bool = True
    remove_view_copy: bool = True
    do_const_prop: bool = True
    kernels: Sequence[str | KernelLibraryInterface] | None = None
    check_kernels: bool = True
    propagate_device_config: PropagateDeviceConfig | Mapping[str, PropagateDeviceConfig] = PropagateDeviceConfig()
    enable_non_cpu_memory_planning: bool = True
    overlap_delegates: bool = True
    fallback: Fallbacks = None
    metadata: UserMetadata = field(default_factory=dict)

    def memory_planning(self, method: str) -> MemoryPlanningPass:
        """How the memory of `method` is planned."""
        chosen = self.memory_planning_pass
        if isinstance(chosen, Mapping):
            chosen = chosen.get(method)
        if chosen is not None:
            return chosen
        return MemoryPlanningPass(self.memory_planner, False, **{name: getattr(self, name) for name in MEMORY_OPTIONS})

    def skipped_copies(self, method: str) -> tuple[bool, bool]:
        """Which copies to and from devices `method` does without: those of inputs, and those of outputs."""
        chosen = self.propagate_device_config
        chosen = chosen.get(method, PropagateDeviceConfig()) if isinstance(chosen, Mapping) else chosen
        return chosen.skipped(method)

    @property
    def serialization(self) -> SerializationConfig:
        """The part that the writer of the file needs."""
        return SerializationConfig(
            segment_alignment=self.segment_alignment,
            constant_tensor_alignment=self.constant_tensor_alignment or 16,
            delegate_alignment=self.delegate_alignment,
            extract_delegate_segments=self.extract_delegate_segments,
        )


@dataclass(frozen=True, slots=True)
class LoweringConfig:
    """Everything that `delegraph.lower` leaves at its default: the stages' own configurations and the user's passes.

    `constant_methods` become methods that return a constant. `stages` are stages of plug-ins, by name as passes are, or
    objects; each runs at the place that it says.
    """

    edge: EdgeCompileConfig = field(default_factory=EdgeCompileConfig)
    executorch: ExecutorchBackendConfig = field(default_factory=ExecutorchBackendConfig)
    transform_passes: Passes = ()
    constant_methods: Mapping[str, object] = field(default_factory=dict)
    stages: Sequence[PipelineStage[Any] | PluginName] = ()
