"""A method's lifetimes -> a place for every tensor: options of memory planning, and where others' comes in.

Most who want another plan write a planner, a function over lifetimes (`delegraph.interfaces.MemoryPlanner`). Who has to
see the graph, to put tensors of some operators into a memory of their own, overrides `MemoryPlanningPass.plan`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Final

from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.interfaces.memory_hierarchy import MemoryHierarchy, read_memory_hierarchy
from delegraph.interfaces.memory_planner import Lifetime, MemoryPlanner, Plan
from delegraph.program.schema import NonConstBufferDevice

__all__ = ["ALIGNMENT", "MemoryPlanningPass", "MethodMemory", "MethodPlan"]

ALIGNMENT: Final = 16
"""Bytes; every planned tensor starts at a multiple (ExecuTorch `exir/tensor.py`)."""


@dataclass(frozen=True, slots=True)
class MethodMemory:
    """The lifetimes of a method, which ask for memory.

    `program` is the graph that was emitted, views and updates in place marked on its nodes. A lifetime's `id` is the
    index of its value in the method; `values` has that index for result `position` of a node, bodies of control flow
    included; several nodes that show one memory have one index. Lifetimes that no node stands for are of copies that
    emission has made. `devices` are the memories that are not the CPU's: what lies in one must not go to another.
    """

    name: str
    program: ExportedProgram
    lifetimes: tuple[Lifetime, ...]
    values: Mapping[tuple[Node, int], int]
    devices: tuple[NonConstBufferDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class MethodPlan:
    """The lifetimes, with memory ids as chosen, their places, and the memories that are not the CPU's."""

    lifetimes: tuple[Lifetime, ...]
    plan: Plan
    devices: tuple[NonConstBufferDevice, ...] = ()


@dataclass
class MemoryPlanningPass:
    """How a method's memory is planned (ExecuTorch `exir/passes/memory_planning_pass.py`).

    `memory_planning_algo` is the name of an installed planner or a function (None: "greedy"). `alloc_graph_input`,
    `alloc_graph_output` and `alloc_mutable_buffers` say whether these have planned memory, or memory that the caller
    gives at run time; `share_mutable_buffers` gives a buffer one place in all methods, in a memory of its own.
    `alignment` is of every tensor, in bytes. `memory` describes the memories that there are, or is the path of a TOML
    file that does (`delegraph.interfaces.read_memory_hierarchy`); without it there is one, without limit.
    `allow_lifetime_and_storage_overlap` leaves unchecked whether tensors that are alive together have places of their
    own: the planner answers for that.
    """

    memory_planning_algo: str | MemoryPlanner | None = None
    allow_lifetime_and_storage_overlap: bool = False
    alloc_graph_input: bool = True
    alloc_graph_output: bool = True
    alloc_mutable_buffers: bool = True
    share_mutable_buffers: bool = False
    alignment: int = ALIGNMENT
    memory: MemoryHierarchy | str | PathLike[str] | None = None

    @property
    def hierarchy(self) -> MemoryHierarchy | None:
        """The memories, read from their file if `memory` is a path. Raises `InvalidArgument`."""
        return self.memory if isinstance(self.memory, MemoryHierarchy | None) else read_memory_hierarchy(self.memory)

    @property
    def planner(self) -> str | MemoryPlanner:
        """The planner that `plan` is handed, or its name."""
        return self.memory_planning_algo or "greedy"

    def plan(self, method: MethodMemory, planner: MemoryPlanner) -> MethodPlan:
        """A place for every lifetime of `method`; `planner` is the one of that property, loaded."""
        return MethodPlan(method.lifetimes, planner(method.lifetimes, self.alignment), method.devices)
