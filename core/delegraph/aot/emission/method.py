"""MethodGraph -> EmittedMethod: values and instructions, complete but for the tensors' places in memory.

    inputs, states, constants ── nodes ──> instructions ── write-backs ──> outputs

Lifetimes are read off the finished instruction list (`memory.py`), jumps included, so memory is planned for exactly
what will run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.config import ExecutorchBackendConfig
from delegraph.aot.emission.container_metadata import container_metadata
from delegraph.aot.emission.contract import method_contract
from delegraph.aot.emission.instructions import MethodBuilder, ProgramData
from delegraph.aot.emission.nodes import EmitOptions, GraphEmitter
from delegraph.aot.emission.values import PlannedTensor
from delegraph.aot.graph.external_constants import external_tag
from delegraph.aot.graph.signature import HeldTensor, MethodGraph
from delegraph.aot.graph.source_location import user_location
from delegraph.aot.graph.stored_tensor import have_same_bytes, tensor_bytes
from delegraph.aot.graph.tensor_spec import Bounds, spec_of_tensor
from delegraph.aot.memory_planning import MemoryPlanningPass
from delegraph.aot.passes.view_elision import own_results
from delegraph.errors import LoweringError
from delegraph.interfaces.memory_planner import Lifetime
from delegraph.program.alternatives import is_reserved
from delegraph.program.contract import MethodContract
from delegraph.program.schema import (
    Bool,
    ContainerMetadata,
    Double,
    ExtraTensorInfo,
    Int,
    Null,
    String,
    TensorDataLocation,
    Value,
)

__all__ = ["EmittedMethod", "emit_method"]


@dataclass(frozen=True, slots=True)
class EmittedMethod:
    """A method whose tensors have no places yet. `inputs` and `outputs` are value indices.

    `at_work`: an instruction that submits a delegate -> the last one that begins before the delegate has ended; where
    there are any, `in_order` are the lifetimes in the graph's own order.
    """

    name: str
    program: ExportedProgram
    builder: MethodBuilder
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    container: ContainerMetadata
    contract: MethodContract
    at_work: Mapping[int, int] = field(default_factory=dict)
    in_order: Sequence[Lifetime] = ()

    @property
    def node_values(self) -> dict[tuple[Node, int], int]:
        """Which value's memory holds a result of a node: (node, position) -> value index."""
        roots: dict[tuple[Node, int], int] = {}
        for values in self.builder.graphs:
            for node, value in values.items():
                for position, index in enumerate(value if isinstance(value, tuple) else (value,)):
                    if isinstance(index, int) and self.builder.table.is_tensor(index):
                        roots[node, position] = self.builder.table.root(index)
        return roots


def emit_method(
    method: MethodGraph, data: ProgramData, config: ExecutorchBackendConfig, planning: MemoryPlanningPass
) -> EmittedMethod:
    """Emit `method`, whose memory is planned as `planning` says; its weights and blobs go to `data`. Raises
    `LoweringError` and its kinds, naming the node."""
    emitter = _MethodEmitter(method, data, config, planning)
    outputs = emitter.emit()
    inputs = tuple(emitter.index(node) for node in method.signature.inputs)
    values = emitter.builder.table.values
    contract = method_contract(
        method.program,
        {node: values[index] for node, index in zip(method.signature.inputs, inputs, strict=True)},
        [(node, values[index]) for node, index in zip(method.signature.outputs, outputs, strict=True)],
    )
    container = container_metadata(method.program)
    return EmittedMethod(method.name, method.program, emitter.builder, inputs, outputs, container, contract)


class _MethodEmitter(GraphEmitter):
    """The graph of a method: a body with inputs, weights and states around it."""

    def __init__(
        self, method: MethodGraph, data: ProgramData, config: ExecutorchBackendConfig, planning: MemoryPlanningPass
    ) -> None:
        unplanned = frozenset() if planning.alloc_graph_output else frozenset(own_results(method.signature))
        super().__init__(
            MethodBuilder(data),
            method.program.graph_module,
            Bounds.of_program(method.program),
            EmitOptions(unplanned, config.enable_non_cpu_memory_planning),
            method.signature.constants,
        )
        self.method_name, self.config, self.planning = method.name, config, planning
        self.signature = method.signature

    def emit(self) -> tuple[int, ...]:
        """Emit everything; the indices of the outputs."""
        for node in self.signature.inputs:
            self.builder.node = node
            self.values[node] = self._input(node)
        for node, state in self.signature.states.items():
            self.values[node] = self._state(node, state)
        targets = [*self.signature.states, *(write_back.target for write_back in self.signature.write_backs)]
        self.pinned = {self.index(node) for node in targets}
        self.run(self.signature.results)
        outputs = tuple(self._outputs())
        self._write_back()
        return outputs

    # ---- what the graph starts from --------------------------------------------------------------------

    def _input(self, node: Node) -> int:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            spec = self.bounds.spec(value, node)
            memory_id = int(node.meta.get("memory_id", 1)) if self.planning.alloc_graph_input else None
            return self.tensor(node, spec, memory_id)
        if is_reserved(self.method_name) and isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self.builder.table.variable(value)  # an alternative's: calls of its delegate have it
        return self.builder.table.add(_plain_input(node, value))

    def _state(self, node: Node, state: HeldTensor) -> int:
        """A tensor that keeps its bytes between runs. Zeros need no initial data: planned memory starts as zeros."""
        trained = node in self.signature.trained
        spec = self.bounds.spec(node.meta["val"], node)
        named = ExtraTensorInfo(fully_qualified_name=state.name)
        if not self.planning.alloc_mutable_buffers and not trained:
            return self.builder.table.tensor(spec, None, 0, named)
        shared = state.name if self.planning.share_mutable_buffers else None
        planned = PlannedTensor(spec.nbytes, int(node.meta.get("memory_id", 1)), True, shared)
        if trained and (tag := external_tag(node)) is not None:
            return self._external_constant(tag, state, planned)
        extra = named if self.config.emit_mutable_buffer_names else None
        initial = tensor_bytes(state.tensor, spec.dim_order)
        idx = self.builder.data.mutable_data.add(initial) if any_byte(initial) else 0  # 0: no data in the file
        return self.builder.table.tensor(spec, planned, idx, extra)

    def weight(self, node: Node, stored: HeldTensor) -> int:
        """A weight, whose bytes are in the program, or in the `.ptd` that its tag names."""
        tag = external_tag(node)
        return self.constant(stored.tensor) if tag is None else self._external_constant(tag, stored)

    def _external_constant(self, tag: str, stored: HeldTensor, planned: PlannedTensor | None = None) -> int:
        """A tensor whose bytes are in a `.ptd`: used where they are, or to begin with in planned memory."""
        others = self.builder.data.external_constants.setdefault(tag, {})
        if not have_same_bytes(others.setdefault(stored.name, stored.tensor), stored.tensor):
            raise LoweringError(
                f"method {self.method_name!r}: its weight {stored.name!r} is another one than an earlier method's of"
                f" that name, and {tag}.ptd has one entry for a name: rename one, or keep them in the program"
            )
        extra = ExtraTensorInfo(fully_qualified_name=stored.name, location=TensorDataLocation.EXTERNAL)
        return self.builder.table.tensor(spec_of_tensor(stored.tensor), planned, extra=extra)

    # ---- what it ends with -----------------------------------------------------------------------------

    def _outputs(self) -> list[int]:
        """The outputs' values; a copy where the value is not the output's own to keep."""
        outputs: list[int] = []
        for output in self.signature.outputs:
            index = self.index(output)
            if (
                isinstance(output, Node)
                and self.builder.table.is_tensor(index)
                and self._needs_copy(output, index, outputs)
            ):
                index = self._copy(output, index)
            outputs.append(index)
        return outputs

    def _needs_copy(self, output: Node, index: int, others: Sequence[int]) -> bool:
        """A state is overwritten before the caller reads it; memory that the caller gives serves one output only.

        A weight that is trained is given as it is: an optimizer changes it there.
        """
        if output in self.signature.trained:
            return False
        if self.builder.table.root(index) in self.pinned:
            return True
        return not self.planning.alloc_graph_output and (output not in self.options.unplanned or index in others)

    def _copy(self, node: Node, index: int) -> int:
        table = self.builder.table
        spec = table.specs[index]
        planned = PlannedTensor(spec.nbytes) if self.planning.alloc_graph_output else None
        copy = table.tensor(spec, planned)
        self.builder.node = node
        self.builder.clone(index, copy)
        return copy

    def _write_back(self) -> None:
        """Give states and mutated inputs their new values; a value that one of these writes overwrites is copied away
        before.

        buffer 'a' <- %b_b      a model that swaps its buffers: written in order, `a <- b; b <- a` would lose `a`,
        buffer 'b' <- %b_a      so first t0 = clone(b), t1 = clone(a), then a <- t0, b <- t1
        """
        pairs = [(w.source, self.index(w.source), self.index(w.target)) for w in self.signature.write_backs]
        pairs = [(node, source, target) for node, source, target in pairs if source != target]
        table = self.builder.table
        for position, (node, source, target) in enumerate(pairs):
            if table.root(source) in self.pinned:  # the source lies in memory that a write-back overwrites
                self.builder.node = node
                twin = table.twin(source)
                self.builder.clone(source, twin)
                pairs[position] = (node, twin, target)
        for node, source, target in pairs:
            self.builder.node = node
            self.builder.copy_(target, source)
        self.builder.node = None


def any_byte(data: memoryview) -> bool:
    """Whether some byte is not zero."""
    return bool(data) and bool(torch.frombuffer(data, dtype=torch.uint8).any())


def _plain_input(node: Node, value: object) -> Value:
    """An input that is not a tensor: at run time it must have this very value."""
    if value is None:
        return Null()
    if isinstance(value, bool):
        return Bool(value)
    if isinstance(value, int):
        return Int(value)
    if isinstance(value, float):
        return Double(value)
    if isinstance(value, str):
        return String(value)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        name = str(node.target)
        raise LoweringError(
            f"input {name!r} is a number of the caller's own in each call, and a method takes those in tensors alone\n"
            f"  what to do: give it as torch.tensor({name}) and read it by {name}.item() in forward, or leave it out of"
            " dynamic_shapes, so that it is what it was in the example",
            node=node.name,
        )
    raise LoweringError(
        f"input {str(node.target)!r} is {type(value).__name__}; a method takes tensors, numbers, strings and None",
        node=node.name,
        location=user_location(node),
    )
