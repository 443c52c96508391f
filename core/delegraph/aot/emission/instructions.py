"""Calls on value indices -> the instruction list of a method, with its operators, delegates and debug handles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NotRequired, TypedDict

import torch
from torch.fx import Node

from delegraph.aot.delegation.lowered_module import LoweredBackendModule
from delegraph.aot.emission.constant_pool import ConstantPool
from delegraph.aot.emission.values import MethodValues
from delegraph.aot.graph.bodies import output_values
from delegraph.aot.graph.source_location import user_frames
from delegraph.program.schema import (
    DelegateCall,
    Frame,
    Instruction,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    Operator,
)

__all__ = ["DelegateInfo", "MethodBuilder", "ProgramData"]

CLONE: Final = Operator("aten::clone", "out")
COPY_: Final = Operator("aten::copy_")


@dataclass(slots=True)
class ProgramData:
    """The data that the methods of a program share: constants and initial states, each content once."""

    constants: ConstantPool = field(default_factory=ConstantPool)
    mutable_data: ConstantPool = field(default_factory=ConstantPool)
    external_constants: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    """Weights that go to a `.ptd`: tag -> fully qualified name -> tensor."""


class DelegateInfo(TypedDict):
    """The delegate that an instruction calls, its backend's ids by debug handles, and the backend's further information
    (`PreprocessResult._delegate_info_meta`), if any. An ETRecord has the first two."""

    name: str
    delegate_map: Mapping[int, Sequence[int]] | Mapping[str, Sequence[int]]
    delegate_info_meta: NotRequired[object]


class MethodBuilder:
    """Appends instructions. `node` is the graph node that they are emitted for; errors and debug maps name it."""

    def __init__(self, data: ProgramData) -> None:
        self.data = data
        self.table = MethodValues()
        self.instructions: list[Instruction] = []
        self.nodes: list[Node | None] = []
        self.operators: dict[Operator, int] = {}
        self.users: dict[Operator, list[Node]] = {}
        """Which nodes need an operator."""
        self.delegates: list[LoweredBackendModule] = []
        self._delegate_indices: dict[int, int] = {}
        self.delegate_calls: dict[int, LoweredBackendModule] = {}
        """The delegate that each call instruction calls."""
        self.node: Node | None = None
        self.graphs: list[dict[Node, int | tuple[int, ...]]] = []
        """The values of each graph's nodes, one mapping for the method's graph and for each body that was emitted."""

    # ---- calls -----------------------------------------------------------------------------------------

    def kernel(self, operator: Operator, args: Sequence[int]) -> None:
        """Call a kernel; `args` are the schema's arguments, then the return slots."""
        index = self.operators.setdefault(operator, len(self.operators))
        if self.node is not None:
            self.users.setdefault(operator, []).append(self.node)
        self._append(KernelCall(index, tuple(args)))

    def prim(self, name: str, args: Sequence[int], like: object) -> int:
        """The new scalar, of the type of `like`, that `executorch_prim::<name>.Scalar` gives."""
        result = self.table.variable(like)
        self.prim_into(name, args, result)
        return result

    def prim_into(self, name: str, args: Sequence[int], result: int) -> None:
        """Write the result of `executorch_prim::<name>.Scalar` into the scalar `result`."""
        self.kernel(Operator(f"executorch_prim::{name}", "Scalar"), [*args, result])

    def constant(self, value: object) -> int:
        """The index of a constant scalar."""
        return self.table.scalar(value)

    def delegate(self, lowered: LoweredBackendModule, args: Sequence[int]) -> None:
        """Call a delegate on its inputs, then its outputs. Its blob may be empty still: nothing of it is read."""
        index = self._delegate_indices.setdefault(id(lowered), len(self.delegates))
        if index == len(self.delegates):
            self.delegates.append(lowered)
        self.delegate_calls[len(self.instructions)] = lowered
        self._append(DelegateCall(index, tuple(args)))

    def clone(self, source: int, target: int) -> None:
        """Copy a tensor's data into a new one, which takes its shape."""
        self.kernel(CLONE, [source, self.table.scalar(None), target, target])

    def copy_(self, target: int, source: int) -> None:
        """Overwrite a tensor that lives on."""
        self.kernel(COPY_, [target, source, self.table.scalar(False), target])

    def move(self, source: int, target: int) -> None:
        """Copy a scalar."""
        self._append(MoveCall(source, target))

    # ---- jumps -----------------------------------------------------------------------------------------

    @property
    def here(self) -> int:
        """The index of the next instruction."""
        return len(self.instructions)

    def jump_if_false(self, condition: int, destination: int = -1) -> int:
        """Jump, for now to nowhere unless a destination is known; `land` sets it."""
        self._append(JumpFalseCall(condition, destination))
        return len(self.instructions) - 1

    def jump(self, destination: int = -1) -> int:
        """Jump in any case."""
        return self.jump_if_false(self.constant(False), destination)

    def land(self, jump: int) -> None:
        """Let `jump` go to the next instruction."""
        call = self.instructions[jump]
        assert isinstance(call, JumpFalseCall)
        self.instructions[jump] = JumpFalseCall(call.cond_value_index, self.here)

    # ---- their order -----------------------------------------------------------------------------------

    def reorder(self, order: Sequence[int]) -> None:
        """Let the instruction at `order[i]` be the i-th. No jump and no jump's destination may move."""
        self.instructions = [self.instructions[position] for position in order]
        self.nodes = [self.nodes[position] for position in order]
        calls = ((position, self.delegate_calls.get(before)) for position, before in enumerate(order))
        self.delegate_calls = {position: lowered for position, lowered in calls if lowered is not None}

    # ---- what is known about instructions --------------------------------------------------------------

    def debug_handles(self) -> dict[int, object]:
        """Instruction -> the debug handle of its node; of a call of a delegate, those of the nodes in it."""
        handles = {
            index: node.meta["debug_handle"]
            for index, node in enumerate(self.nodes)
            if node is not None and node.meta.get("debug_handle") is not None
        }
        return handles | {index: list(lowered.debug_handles) for index, lowered in self.delegate_calls.items()}

    def output_counts(self) -> dict[int, int]:
        """Instruction -> how many results the delegate that it calls gives."""
        graphs = {index: lowered.original_module.graph for index, lowered in self.delegate_calls.items()}
        return {index: len(output_values(graph)) for index, graph in graphs.items()}

    def stacktrace(self) -> tuple[tuple[Frame, ...], ...]:
        """The frames of user code behind each instruction, outermost first."""
        return tuple(
            tuple(Frame(file, line, function, code) for file, line, function, code in user_frames(node))
            if node is not None
            else ()
            for node in self.nodes
        )

    def _append(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)
        self.nodes.append(self.node)
