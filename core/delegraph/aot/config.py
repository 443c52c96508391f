"""What can be set about lowering: how edge programs are made, how they become a file, and both together.

Names of the first two are ExecuTorch's (`exir/capture/_config.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torch._ops import OpOverload
from torch.fx import Node

from delegraph.interfaces.graph_pass import GraphPass
from delegraph.interfaces.memory_planner import MemoryPlanner
from delegraph.program.serialize import SerializationConfig

__all__ = [
    "DEFAULT_EXTERNAL_TAG",
    "EdgeCompileConfig",
    "ExecutorchBackendConfig",
    "ExternalConstants",
    "LoweringConfig",
    "Pass",
    "Passes",
]

DEFAULT_EXTERNAL_TAG = "_default_external_constant"
"""The `.ptd` that `external_constants=True` writes (ExecuTorch `exir/tensor.py`)."""

ExternalConstants: TypeAlias = "bool | Callable[[Node], str | None]"

Pass: TypeAlias = "GraphPass | str | tuple[str, Mapping[str, Any]]"
"""A pass, or the name of an installed one: `"name"`, `"name{option=1}"`, `("name", {"option": 1})`."""

Passes: TypeAlias = "Sequence[Pass] | Mapping[str, Sequence[Pass]]"
"""Passes in order, for all methods or by method name."""


@dataclass(frozen=True, slots=True)
class EdgeCompileConfig:
    """How edge programs are made.

    `preserve_ops` stay whole whatever the backends ask for (each then needs a kernel or a backend);
    `_core_aten_ops_exception_list` are admitted although they are not core; without `_check_ir_validity` nothing is
    verified.
    """

    preserve_ops: Sequence[OpOverload] = ()
    _core_aten_ops_exception_list: Sequence[OpOverload] = ()
    _check_ir_validity: bool = True
    allowed_ops: frozenset[OpOverload] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "allowed_ops", frozenset({*self.preserve_ops, *self._core_aten_ops_exception_list}))


@dataclass(frozen=True, slots=True)
class ExecutorchBackendConfig:
    """Options of `to_executorch`.

    `passes` run on each edge program first, for all methods or by method name. `memory_planner` is the name of an
    installed planner or a function (`delegraph.aot.emission.planners`). `alloc_graph_input`, `alloc_graph_output` and
    `alloc_mutable_buffers` say whether these have planned memory, or memory that the caller gives at run time;
    `share_mutable_buffers` gives a buffer one place in all methods, in a memory of its own.
    `external_constants` moves the model's weights (True), or those for which it returns a name, to `<name>.ptd`.
    `do_const_prop` computes what depends on weights alone now. `remove_view_copy` lets static views share memory.
    `emit_stacktrace` keeps the user's source lines in the file. `kernels` are the libraries that the device will
    have, or names of installed ones (None: what is installed), and `check_kernels=False` leaves unchecked whether they
    can run the program. Alignments are in bytes; None is the format's own (16).
    """

    passes: Passes = ()
    memory_planner: str | MemoryPlanner = "greedy"
    alloc_graph_input: bool = True
    alloc_graph_output: bool = True
    alloc_mutable_buffers: bool = True
    share_mutable_buffers: bool = False
    segment_alignment: int = 128
    constant_tensor_alignment: int | None = None
    delegate_alignment: int | None = None
    extract_delegate_segments: bool = True
    external_constants: ExternalConstants = False
    emit_stacktrace: bool = False
    remove_view_copy: bool = True
    do_const_prop: bool = True
    kernels: Sequence[Any] | None = None
    check_kernels: bool = True

    def external_tag(self, node: Node) -> str | None:
        """The `.ptd` that a weight's placeholder goes to."""
        if callable(self.external_constants):
            return self.external_constants(node)
        return DEFAULT_EXTERNAL_TAG if self.external_constants else None

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

    `constant_methods` become methods that return a constant.
    """

    edge: EdgeCompileConfig = field(default_factory=EdgeCompileConfig)
    executorch: ExecutorchBackendConfig = field(default_factory=ExecutorchBackendConfig)
    transform_passes: Passes = ()
    constant_methods: Mapping[str, Any] = field(default_factory=dict)
