"""How an edge program becomes a file: `ExecutorchBackendConfig`, with ExecuTorch's field names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch.fx import Node

from delegraph.aot.passes import GraphPass
from delegraph.interfaces.memory_planner import MemoryPlanner
from delegraph.program.serialize import SerializationConfig

__all__ = ["DEFAULT_EXTERNAL_TAG", "ExecutorchBackendConfig", "ExternalConstants"]

DEFAULT_EXTERNAL_TAG = "_default_external_constant"
"""The `.ptd` that `external_constants=True` writes (ExecuTorch `exir/tensor.py`)."""

ExternalConstants: TypeAlias = "bool | Callable[[Node], str | None]"


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

    passes: Sequence[GraphPass] | Mapping[str, Sequence[GraphPass]] = ()
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

    def passes_of(self, method: str) -> Sequence[GraphPass]:
        """The passes for one method."""
        return self.passes.get(method, ()) if isinstance(self.passes, Mapping) else self.passes

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
