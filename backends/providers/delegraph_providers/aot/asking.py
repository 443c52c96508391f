"""A program and a provider -> the calls that the provider leaves, each with why: the device's own answer.

A graph is compiled by the provider, or given to it, as lowering and loading do; where the provider is not here, the
table of its row answers. Where a graph is refused as a whole, each call is asked about by itself; where all of these
are taken, the whole is left.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import onnx_ir as ir
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.authoring import program_of
from delegraph.errors import NotSupported, PluginUnavailable, UnsupportedOperator
from delegraph_onnx.convert import ConvertedModel, convert
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_providers.aot.assigning import Assigned, Graph, assigned, assigned_by_table, graph_of
from delegraph_providers.aot.compiling import compiled
from delegraph_providers.aot.halves import in_float16
from delegraph_providers.aot.targets import lowered_for, target_of
from delegraph_providers.engine import ProviderFailed
from delegraph_providers.options import GraphOptions, ProviderOptions, QnnOptions
from delegraph_providers.providers import Provider

__all__ = ["Device", "answer_of", "converted", "model_bytes"]

Left: TypeAlias = Mapping[str, str]
"""By the names of the values that the nodes give which a provider leaves, the operators of these nodes."""

_SIZES: Final = 64
"""Bytes of a constant that may decide what a provider takes: the sizes of 8 dims. Larger ones are weights."""


def converted(program: ExportedProgram, provider: Provider, options: ProviderOptions) -> ConvertedModel:
    """The ONNX model of a partition. Raises `UnsupportedOperator` for a node that the table declines."""
    model = convert(program, GraphBuilder(target_of(provider)))
    if isinstance(options, GraphOptions) and options.precision == "f16":
        in_float16(model.model)
    return model


def model_bytes(model: ConvertedModel) -> bytes:
    """The model as onnxruntime reads it, each node called as its first result, by which debug handles are found."""
    for node in model.model.graph.all_nodes():
        node.name = node.outputs[0].name
    content: bytes = ir.to_proto(model.model).SerializeToString()
    return content


def answer_of(provider: Provider, graph: Graph, options: GraphOptions) -> tuple[Assigned, bool]:
    """The part of a graph that the provider leaves, and whether it was asked: where it is not here, its table is.
    Raises `ProviderFailed`."""
    try:
        return assigned(options.chosen_provider, graph, options), True
    except NotSupported:
        return assigned_by_table(graph, lowered_for(provider)[1]), False


@dataclass(slots=True)
class Device:
    """The device that delegates are for. Answers are kept, by the digest of the graph that was asked about, in which
    values have numbers for names, and weights do not count: alike layers of a deep model are asked about
    once. `is_asked`: whether the provider itself answers, and not the table of its row.
    """

    provider: Provider
    options: ProviderOptions
    is_asked: bool = True
    answers: dict[bytes, Left | str] = field(default_factory=dict)

    def declined(self, program: ExportedProgram, nodes: Sequence[Node]) -> dict[Node, str]:
        """Those of the calls `nodes` that the provider leaves; of a tuple's elements, the call that gives the tuple.
        Raises `PluginUnavailable` where there is no provider."""
        known = _known(program, nodes)
        results = [node for node in known if any(user not in nodes for user in node.users)]
        if results and self.provider.compiles:
            why = "reads nothing but constants, and no binary of the provider's gives one"
            return {_head(node): why for node in results}
        return {_head(node): why for node, why in self._declined(program, nodes, known).items()}

    def _declined(self, program: ExportedProgram, nodes: Sequence[Node], known: Collection[Node]) -> dict[Node, str]:
        try:
            model = converted(program_of(program, nodes), self.provider, self.options)
        except UnsupportedOperator as error:  # of a weight that is in another file, say
            at_fault = [node for node in nodes if error.node in (node.name, *(n.name for n in node.all_input_nodes))]
            return dict.fromkeys(at_fault or nodes, str(error).partition("\n")[0])
        answer = self._ask(model)
        if isinstance(answer, str):
            return self._one_by_one(program, nodes, known, answer)
        return self._calls_of(answer, model, nodes)

    def _one_by_one(
        self, program: ExportedProgram, nodes: Sequence[Node], known: Collection[Node], why: str
    ) -> dict[Node, str]:
        units = [unit for unit in _units(nodes) if unit[0] not in known]
        if len(units) == 1:
            return dict.fromkeys(units[0], f"the provider fails: {why}")
        left: dict[Node, str] = {}
        for unit in units:
            left |= self._declined(program, [*_computed_for(unit, known), *unit], known)
        return left or dict.fromkeys(nodes, f"the provider takes each call of its partition, and not all: {why}")

    def _ask(self, model: ConvertedModel) -> Left | str:
        """The part of a model that the provider leaves, or why it refuses all of it."""
        names = _numbered(model.model)
        content = model_bytes(model) if self.provider.compiles else b""
        graph = graph_of(model.model, _SIZES)
        key = hashlib.sha256(graph.content).digest()
        if key not in self.answers:
            try:
                self.answers[key] = self._answer(graph, content)
            except ProviderFailed as error:
                self.answers[key] = str(error)
            except NotSupported as error:
                raise PluginUnavailable(str(error)) from error
        answer = self.answers[key]
        return answer if isinstance(answer, str) else {names[value]: op_type for value, op_type in answer.items()}

    def _answer(self, graph: Graph, content: bytes) -> Left:
        if isinstance(self.options, GraphOptions):
            answer, self.is_asked = answer_of(self.provider, graph, self.options)
            return answer.left
        assert isinstance(self.options, QnnOptions)
        made = compiled(self.provider, content, self.options.of_provider())
        return {name: node.op_type for node in made.left for name in node.output}

    def _calls_of(self, left: Left, model: ConvertedModel, nodes: Sequence[Node]) -> dict[Node, str]:
        """The calls of which the nodes were made that give these values."""
        by_handle: dict[int, Node] = {node.meta["debug_handle"]: node for node in nodes if "debug_handle" in node.meta}
        declined: dict[Node, str] = {}
        for value, operator_type in left.items():
            for handle in model.debug_handles.get(value, ()):
                if handle in by_handle:
                    declined[by_handle[handle]] = self._told(operator_type)
        return declined

    def _told(self, operator_type: str) -> str:
        if self.is_asked:
            return f"the provider leaves its {operator_type} to the CPU"
        return f"its {operator_type} is not in the table of {self.provider.name}, of which no device here can be asked"


def _numbered(model: ir.Model) -> dict[str, str]:
    """Name the values of a model by their order; the names that they had, by those that they have now."""
    names: dict[str, str] = {}
    for graph in model.graphs():
        results = (value for node in graph for value in node.outputs)
        for value in [*graph.inputs, *graph.initializers.values(), *results]:
            if value.name:  # a result that is left out has none
                number = str(len(names))
                names[number], value.name = value.name, number
    return names


def _known(program: ExportedProgram, nodes: Sequence[Node]) -> Collection[Node]:
    """The calls that nothing of a run goes into."""
    signature = program.graph_signature
    by_kind = (signature.inputs_to_parameters, signature.inputs_to_buffers, signature.inputs_to_lifted_tensor_constants)
    changed = {*signature.buffers_to_mutate.values()}
    constants = {name for kind in by_kind for name, target in kind.items() if target not in changed}
    known: dict[Node, None] = {}
    for node in nodes:
        if all(source in known or source.name in constants for source in node.all_input_nodes):
            known[node] = None
    return known


def _computed_for(unit: Sequence[Node], known: Collection[Node]) -> list[Node]:
    """Those of the `known` calls that `unit` reads: a weight that is turned first is a weight all the same."""
    needed: set[Node] = set()
    waiting = [*unit]
    while waiting:
        sources = {source for source in waiting.pop().all_input_nodes if source in known} - needed
        needed |= sources
        waiting += sources
    return [node for node in known if node in needed]


def _units(nodes: Sequence[Node]) -> list[list[Node]]:
    """The calls, each with the elements of its result."""
    units: dict[Node, list[Node]] = {}
    for node in nodes:
        units.setdefault(_head(node), []).append(node)
    return list(units.values())


def _head(node: Node) -> Node:
    """The call whose result, or an element of whose result, `node` is."""
    head = node.args[0] if node.target is operator.getitem else node
    assert isinstance(head, Node)
    return head
