"""A partition -> an author's own values, one for each result: the walk that every compiler begins with.

    class Program(GraphConverter[int]):                   V is int here: the number of a register
        table = TABLE

        def input(self, node):            return self.new_register()
        def constant(self, node, array):  return self.store(array)

    program = Program()
    outputs = program.convert_program(edge_program)       [registers of the outputs]

Rows of the table are called as `row(program, node, *schema arguments)`; `program.value(argument)` is the value for one
of their arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
from numpy.typing import NDArray
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node

from delegraph.aot.authoring.constants import Constants
from delegraph.aot.authoring.converter_table import ConverterTable
from delegraph.aot.authoring.dtypes import as_array
from delegraph.aot.graph.bodies import output_values
from delegraph.aot.graph.external_constants import external_tag
from delegraph.aot.graph.fake_values import Args
from delegraph.aot.graph.signature import HeldTensor, ResolvedSignature
from delegraph.aot.graph.source_location import user_location
from delegraph.errors import UnsupportedOperator

__all__ = ["GraphConverter", "body_of", "debug_handles"]

V = TypeVar("V")


class GraphConverter(Generic[V]):
    """Walks over a partition once, in its order. Override what a placeholder becomes; the table has the calls.

    `values` has for each node so far its value, or a sequence of them for several results. `constants` has the known
    content of nodes, `signature` says which placeholder is what. `node` is the call that is being converted.
    """

    table: ClassVar[ConverterTable]

    signature: ResolvedSignature

    def __init__(self) -> None:
        self.values: dict[Node, V | Sequence[V | None]] = {}
        self.constants = Constants()
        self.node: Node | None = None

    # ---- what an author overrides ----------------------------------------------------------------

    def input(self, node: Node) -> V:
        """The value of an argument of the call, which come to `execute` in the order in which this is called: a tensor,
        or a number where `node.meta["val"]` is a `torch.SymInt`, int, float or bool."""
        raise self._cannot(node, "has no inputs")

    def constant(self, node: Node, array: NDArray[Any]) -> V:
        """The value of a weight or a lifted constant, when something first reads it. `array` is not to be written."""
        raise self._cannot(node, "has no constants")

    def external(self, node: Node, held: HeldTensor, tag: str) -> V:
        """The value of a weight that `<tag>.ptd` is to hold; asked of backends that `takes_external_weights`."""
        raise self._cannot(node, "does not take external weights")

    def state(self, node: Node, held: HeldTensor) -> V:
        """The value that a mutable buffer has before the run: for partitioners that tag such (`tag_mutated_buffer`)."""
        raise self._cannot(node, "has no mutable buffers")

    def write_back(self, state: Node, held: HeldTensor, source: Node) -> None:
        """The value of `source` is what the mutable buffer `state` holds after the run."""
        raise self._cannot(state, "has no mutable buffers")

    def number(self, number: complex) -> V:
        """The value of a number that stands where a tensor might: an output of a body, an argument of a loop."""
        raise UnsupportedOperator(f"{self.table.backend} has no values for numbers such as {number!r}")

    def call(self, node: Node) -> V | Sequence[V | None]:
        """The values of the results of a call: the table's row makes them."""
        value: V | Sequence[V | None] = self.table.convert(self, node)
        return value

    def convert_weights(self, signature: ResolvedSignature) -> None:
        """Convert all weights first; unless it is overridden, each is converted when something reads it."""

    def element(self, node: Node) -> V:
        """The value of one result of a call that has several, which `node` picks."""
        source, index = node.args
        results: Any = self.values[source]  # type: ignore[index]
        picked: V = results[index]
        return picked

    def output(self, node: Node, index: int) -> V:
        """The value of output `index`, a tensor: `execute` fills them in this order, behind the inputs."""
        return self.value(node)

    def convert_call(self, node: Node) -> None:
        """Let `values` have what stands for the results of a call."""
        self.values[node] = self.element(node) if node.target is operator.getitem else self.call(node)

    # ---- what is there ---------------------------------------------------------------------------

    def convert_program(self, program: ExportedProgram) -> list[V]:
        """Convert a partition; the values of its outputs, in the order in which `execute` fills them.

        Raises `UnsupportedOperator`, with the node and its line of user code, for what the backend should not have
        claimed.
        """
        self.signature = signature = ResolvedSignature.of(program)
        self.constants = Constants.of(signature)
        for node, spec in signature.others.items():
            raise self._cannot(node, f"has no inputs of kind {spec.kind.name}")
        self.convert_weights(signature)
        for node in signature.inputs:
            self.values[node] = self.input(node)
        for node, stored in signature.states.items():
            self.values[node] = self.state(node, stored)
        self.convert_calls(program.graph)
        outputs = [self._output(output, index) for index, output in enumerate(signature.outputs)]
        for write_back in signature.write_backs:
            if write_back.target in signature.states:
                self.write_back(write_back.target, signature.states[write_back.target], write_back.source)
        return outputs

    def convert_calls(self, graph: Graph) -> None:
        """Convert the calls of a graph, all that they read being known."""
        outer = self.node
        for node in graph.nodes:
            if node.op == "call_function":
                self.node = node
                self.convert_call(node)
        self.node = outer

    def inline(self, reference: Node, arguments: Args) -> list[V]:
        """Convert the body of control flow that `reference`, an argument of its call, names, on `arguments`: nodes,
        numbers, or values. Returns the values of the body's results."""
        graph = body_of(reference)
        for placeholder, argument in zip(graph.find_nodes(op="placeholder"), arguments, strict=True):
            self.values[placeholder] = self._bound(argument)
            self.constants.hold(placeholder, self.constants.array(argument))
        self.convert_calls(graph)
        return [self.value(result) for result in output_values(graph) if result is not None]

    def value(self, argument: Node | complex) -> V:
        """The value for `argument`: a node with one result, or a number."""
        if not isinstance(argument, Node):
            return self.number(argument)
        if argument not in self.values:
            self.values[argument] = self._constant(argument)
        value: V = self.values[argument]  # type: ignore[assignment]  # an author's row reads results of several one by one
        return value

    def array(self, argument: object) -> NDArray[Any] | None:
        """The content of `argument`, if it is known ahead of time."""
        return self.constants.array(argument)

    def debug_handles(self) -> tuple[int, ...]:
        """The handles of the call that is being converted: for the mapping of instructions to lines."""
        return () if self.node is None else debug_handles(self.node)

    # ---- the walk --------------------------------------------------------------------------------

    def _constant(self, node: Node) -> V:
        stored = self.signature.constants.get(node)
        if stored is None:
            raise self._cannot(node, f"read {node.name} before it is made")
        tag = external_tag(node)
        return self.constant(node, as_array(stored.tensor)) if tag is None else self.external(node, stored, tag)

    def _output(self, output: object, index: int) -> V:
        if isinstance(output, Node) and isinstance(output.meta.get("val"), torch.Tensor):
            return self.output(output, index)
        raise UnsupportedOperator(
            f"output {index} of a {self.table.backend} partition is {output}, not a tensor; sizes are to be computed"
            " outside",
            node=getattr(output, "name", None),
        )

    def _bound(self, argument: Any) -> V | Sequence[V | None]:
        if isinstance(argument, bool | int | float | complex):
            return self.number(argument)
        value: V = self.value(argument) if isinstance(argument, Node) else argument
        return value

    def _cannot(self, node: Node, what: str) -> UnsupportedOperator:
        return UnsupportedOperator(f"{self.table.backend} {what}", node=node.name, location=user_location(node))


def body_of(reference: Node) -> Graph:
    """The graph that `reference`, a get_attr node among the arguments of a call of control flow, refers to."""
    body = operator.attrgetter(str(reference.target))(reference.graph.owning_module)
    assert isinstance(body, GraphModule)
    return body.graph


def debug_handles(*nodes: Node) -> tuple[int, ...]:
    """The debug handles of `nodes`, sorted, each once: a value of `PreprocessResult.debug_handle_map`."""
    return tuple(sorted({node.meta["debug_handle"] for node in nodes if "debug_handle" in node.meta}))
