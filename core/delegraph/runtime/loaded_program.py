"""A `Program` as its methods and their state see it: they need its parts, and only it knows both them and itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from delegraph.program import schema
from delegraph.program.contract import MethodContract
from delegraph.program.schema import Buffer, ExecutionPlan
from delegraph.program.shared_state import SharedBuffers
from delegraph.runtime.method_meta import MethodMeta
from delegraph.runtime.resolution.environment import Environment
from delegraph.runtime.values.memory import HierarchicalAllocator
from delegraph.runtime.values.value_parser import TensorSources

__all__ = ["LoadedProgram"]


class LoadedProgram(Protocol):
    """The parts of a `Program`, which says what each of them is."""

    @property
    def records(self) -> schema.Program: ...
    @property
    def environment(self) -> Environment: ...
    @property
    def named_data(self) -> Mapping[str, Buffer]: ...
    @property
    def contracts(self) -> Mapping[str, MethodContract]: ...
    @property
    def shared_buffers(self) -> SharedBuffers | None: ...
    @property
    def backend_ids(self) -> frozenset[str]: ...

    @property
    def is_mapped(self) -> bool: ...

    def plan(self, method_name: str) -> ExecutionPlan: ...
    def metadata(self, method_name: str) -> MethodMeta: ...
    def tensor_sources(self, planned: HierarchicalAllocator, kept: int = 0) -> TensorSources: ...
    def release(self, data: Buffer) -> None: ...
    def require_unchanged(self) -> None: ...
    def check_files(self, method_name: str) -> None: ...
