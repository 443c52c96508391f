"""ExportedProgram -> MethodGraph: a method's graph with its signature resolved to nodes, read and never edited.

What a stage decides about the graph (a node is constant, dead, written back) stands beside it, so that the caller's
program is never touched, nothing is copied and nothing is traced again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, OutputKind
from torch.fx import Graph, Node

from delegraph.aot.graph.bodies import graph_modules, output_values
from delegraph.errors import LoweringError

__all__ = ["Constant", "MethodGraph", "State", "WriteBack", "live_nodes"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A tensor that no run changes. `name` is its fully qualified name, or None for one that folding made."""

    tensor: torch.Tensor
    name: str | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A buffer (or parameter) that the method mutates: its fully qualified name and its value before the first run."""

    name: str
    initial: torch.Tensor


@dataclass(frozen=True, slots=True)
class WriteBack:
    """At the end of a run, `target` (a state's or an input's placeholder) takes the value of `source`."""

    target: Node
    source: Node


@dataclass(frozen=True, slots=True)
class MethodGraph:
    """One method. `outputs` are the user's, flat: nodes and plain values."""

    name: str
    program: ExportedProgram
    constants: Mapping[Node, Constant]
    states: Mapping[Node, State]
    inputs: Sequence[Node]
    outputs: Sequence[Any]
    write_backs: Sequence[WriteBack]

    @classmethod
    def of_program(cls, name: str, program: ExportedProgram) -> MethodGraph:
        """Resolve the signature of `program`. Raises `LoweringError` for an input that no program file can hold."""
        placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
        signature = program.graph_signature
        results = output_values(program.graph)
        mutated = _mutations(signature.output_specs, signature.input_specs, placeholders)
        write_backs = [WriteBack(mutated[i], results[i]) for i in mutated if results[i] is not mutated[i]]
        kept = [r for s, r in zip(signature.output_specs, results, strict=True) if s.kind is OutputKind.USER_OUTPUT]
        changed = set(mutated.values())
        constants: dict[Node, Constant] = {}
        states: dict[Node, State] = {}
        inputs: list[Node] = []
        for spec in signature.input_specs:
            node = placeholders.get(spec.arg.name)
            if node is None or spec.kind is InputKind.TOKEN:
                continue
            if spec.kind is InputKind.USER_INPUT:
                inputs.append(node)
            elif node in changed:
                states[node] = State(str(spec.target), _tensor_of(program, spec, name))
            else:
                constants[node] = Constant(_tensor_of(program, spec, name), str(spec.target))
        return cls(name, program, constants, states, inputs, kept, write_backs)

    def calls(self) -> list[Node]:
        """The operator calls that the outputs and write-backs need, those in the bodies of control flow included."""
        roots = [*self.outputs, *(write_back.source for write_back in self.write_backs)]
        calls: list[Node] = []
        for path, module in graph_modules(self.program.graph_module):
            graph = module.graph
            live = live_nodes(graph, output_values(graph) if path else roots, self.constants)
            calls += (n for n in graph.nodes if n in live and n.op == "call_function" and n not in self.constants)
        return calls


def live_nodes(graph: Graph, roots: Sequence[Any], stop: Mapping[Node, Any]) -> set[Node]:
    """The nodes that `roots` need, and those that act on memory. Behind nodes in `stop` nothing is needed."""
    live: set[Node] = {node for node in roots if isinstance(node, Node)}
    for node in reversed(graph.nodes):
        if node in stop:
            continue
        if node in live or _acts(node):
            live.add(node)
            if node.op == "call_function":
                live.update(node.all_input_nodes)
    return live


def _acts(node: Node) -> bool:
    """Whether a call writes into one of its arguments. Assertions do not: they leave no trace in a program."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and isinstance(schema, torch.FunctionSchema) and schema.is_mutable


def _mutations(
    output_specs: Sequence[Any], input_specs: Sequence[InputSpec], placeholders: Mapping[str, Node]
) -> dict[int, Node]:
    """Index of each output that is a mutation -> the placeholder that it mutates."""
    by_target = {spec.target: spec.arg.name for spec in input_specs if spec.target is not None}
    mutated: dict[int, Node] = {}
    for i, spec in enumerate(output_specs):
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            mutated[i] = placeholders[spec.target]
        elif spec.kind in _STATE_MUTATIONS:
            mutated[i] = placeholders[by_target[spec.target]]
    return mutated


_STATE_MUTATIONS = frozenset({OutputKind.BUFFER_MUTATION, getattr(OutputKind, "PARAMETER_MUTATION", None)})


def _tensor_of(program: ExportedProgram, spec: InputSpec, method: str) -> torch.Tensor:
    target = str(spec.target)
    held = program.state_dict if target in program.state_dict else program.constants
    value = held.get(target)
    if not isinstance(value, torch.Tensor):
        raise LoweringError(
            f"method {method!r}: {spec.kind.name.lower()} {target!r} is {type(value).__name__}, not a tensor; a program"
            " file holds tensors and plain numbers only",
            node=spec.arg.name,
        )
    return value
