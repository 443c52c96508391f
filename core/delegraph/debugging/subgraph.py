"""A functional program and its example inputs -> parts of it, each with its inputs and torch's results: what is tried.

    x ── conv ── relu ── add ── z        the part of `relu` and `add`:
           └────────────┘                inputs: conv; results: z, as torch computes them in the whole

Whatever a part reads from outside is an input, with torch's value of it: a fault before it does not reach it.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.fx import Node
from torch.utils import _pytree as pytree

from delegraph.aot.delegation.part import part_of
from delegraph.aot.graph.bodies import all_nodes
from delegraph.aot.graph.scalars import is_scalar
from delegraph.aot.graph.source_location import user_location
from delegraph.errors import LoweringError

__all__ = ["Case", "Reference"]


@dataclass(frozen=True, slots=True)
class Case:
    """A program with its example inputs, and torch's results for these, in the program's order: tensors, and None for
    what is no tensor. `outputs` are the names of the results."""

    program: ExportedProgram
    expected: Sequence[torch.Tensor | None]
    outputs: tuple[str, ...] = ()


class Reference:
    """A functional program, and the value of each of its nodes for its example inputs, which torch computes.

    Raises `LoweringError` for a program that gives other values each time, or has no example inputs.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self._nodes: dict[str, Node] = {node.name: node for node in program.graph.nodes}
        self._values = _values(program)
        self._check_repeatable()
        stored = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
        self._constants = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind in stored}

    def _check_repeatable(self) -> None:
        """Calls that may draw random numbers are not known to do so: those of dropout do nothing in evaluation."""
        if not any(map(_may_draw, all_nodes(self.program.graph_module))):
            return
        again = _values(self.program)
        for name, value in self._values.items():
            if isinstance(value, torch.Tensor) and not torch.equal(value.nan_to_num(), again[name].nan_to_num()):
                raise LoweringError(
                    "the model draws random numbers, so that there is nothing to compare with: call model.eval()"
                    " before, or leave that part out",
                    node=name,
                    location=user_location(self._nodes[name]),
                )

    @property
    def calls(self) -> list[str]:
        """The names of all calls, in order; elements of tuples and numbers go with the calls that they belong to."""
        return [node.name for node in self._nodes.values() if _is_call(node)]

    def node(self, name: str) -> Node:
        """The node of this name."""
        return self._nodes[name]

    def whole(self) -> Case:
        """All of the program, with its state."""
        specs = self.program.graph_signature.output_specs
        results = [spec.arg for spec in specs if spec.kind is OutputKind.USER_OUTPUT]
        return Case(
            self.program,
            [self._values[result.name] if isinstance(result, TensorArgument) else None for result in results],
        )

    def value(self, name: str) -> Any:
        """Torch's value of a node."""
        return self._values[name]

    def part(self, calls: Collection[str], outputs: Collection[str] | None = None, tapped: bool = False) -> Case | None:
        """These calls alone, giving what is read outside of them, or of that only `outputs`, or (`tapped`) the value of
        each of them; None without a result. Of what is quantized, the codes are the value: a backend on integers has no
        others.

        A buffer that the model changes is a constant here, with its value before the run, and its new value a result.
        """
        inside = self._inside(calls)
        outside = () if tapped else inside
        results = [node for node in inside if self._is_result(node, outside) and (not outputs or node.name in outputs)]
        if tapped:
            results = [node for node in results if self._is_result(node, inside) or not _stands_for_codes(node)]
        if not results:
            return None
        nodes = [node for node in inside if node in results or any(user in inside for user in node.users)]
        part = part_of(self.program, self.program.graph_module, nodes, results, lambda n: n.name in self._constants)
        part.program.example_inputs = (tuple(self._values[node.name] for node in part.arguments), {})
        names = tuple(node.name for node in results)
        return Case(part.program, [self._values[name] for name in names], names)

    def _inside(self, calls: Collection[str]) -> dict[Node, None]:
        """The calls' nodes, the elements of their results, and the numbers that they read, in the program's order: no
        number is an input, for the sizes of a program are those of its tensors."""
        inside: set[Node] = set()
        waiting = [self._nodes[name] for name in calls]
        while waiting:
            node = waiting.pop()
            if node not in inside:
                inside.add(node)
                numbers = [read for read in node.all_input_nodes if is_scalar(read) and read.op == "call_function"]
                waiting += [*numbers, *(user for user in node.users if user.target is operator.getitem)]
        return {node: None for node in self.program.graph.nodes if node in inside}

    def _is_result(self, node: Node, inside: Collection[Node]) -> bool:
        return isinstance(node.meta.get("val"), torch.Tensor) and any(user not in inside for user in node.users)


def _is_call(node: Node) -> bool:
    return node.op == "call_function" and node.target is not operator.getitem and not is_scalar(node)


def _stands_for_codes(node: Node) -> bool:
    """Whether a value is rounded to codes before anything else reads it, or was."""
    return "dequantize" in str(node.target) or _is_quantized_next(node)


def _is_quantized_next(node: Node) -> bool:
    return bool(node.users) and all(map(_leads_to_codes, node.users))


def _leads_to_codes(user: Node) -> bool:
    name = str(user.target)
    return ".quantize" in name or ("dequantize" not in name and len(user.users) == 1 and _is_quantized_next(user))


def _may_draw(node: Node) -> bool:
    return node.op == "call_function" and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


# ---- torch's values ------------------------------------------------------------------------------------------------


class _Recorder(torch.fx.Interpreter):
    """Runs a graph, and keeps the value of each node."""

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module)
        self.values: dict[str, Any] = {}

    def run_node(self, n: Node) -> Any:
        value = self.values[n.name] = super().run_node(n)
        return value


def _values(program: ExportedProgram) -> dict[str, Any]:
    recorder = _Recorder(program.graph_module)
    with torch.no_grad():
        recorder.run(*_arguments(program), enable_io_processing=False)
    return recorder.values


def _arguments(program: ExportedProgram) -> Iterator[object]:
    if program.example_inputs is None:
        raise LoweringError("the program has no example inputs to run it on: export the model again")
    inputs = iter(pytree.tree_leaves(program.example_inputs))
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            yield next(inputs)
        else:
            stored = program.state_dict if spec.target in program.state_dict else program.constants
            yield stored[str(spec.target)]
