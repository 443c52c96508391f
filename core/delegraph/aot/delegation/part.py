"""Calls of a graph -> a program of their own, and the values of the graph that it takes.

    calls of a graph                 their own program
    y = linear(x, w)                 inputs: w (its own), x, k
    z = y * k                        y = linear(x, w)
                                     z = y * k
                                     return z

A constant that is owned comes with its tensor; everything else that is read from outside is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind, InputSpec, OutputKind, OutputSpec
from torch.fx import Graph, GraphModule, Node

from delegraph.aot.delegation.lowered_module import flat_call
from delegraph.aot.graph.bodies import referenced
from delegraph.aot.graph.edit import argument_spec
from delegraph.aot.graph.scalars import is_scalar

__all__ = ["Part", "part_of", "program_of"]


@dataclass(frozen=True, slots=True)
class Part:
    """A program of its own, and the nodes of the whole graph that its inputs stand for, in their order: `constants`,
    whose tensors it has, then `arguments`."""

    program: ExportedProgram
    constants: list[Node]
    arguments: list[Node]


def part_of(
    whole: ExportedProgram,
    module: GraphModule,
    nodes: Sequence[Node],
    outputs: Sequence[Node],
    is_owned: Callable[[Node], bool],
    new_values: Sequence[tuple[Node, OutputSpec]] = (),
) -> Part:
    """The calls `nodes` of `module`, a graph of `whole`, as a program that gives `outputs`; weights are shared.

    `is_owned` says which of the placeholders that they read are constants of the part. `new_values` are those of
    buffers that it changes, each with its entry of the signature.
    """
    specs = {spec.arg.name: spec for spec in whole.graph_signature.input_specs}
    constants, arguments, references = _reads(nodes, specs, is_owned)
    graph = Graph()
    copies: dict[Node, Node] = {}
    for node in (*constants, *arguments):
        copies[node] = graph.placeholder(node.name)
        copies[node].meta = dict(node.meta)
    for node in (*references, *nodes):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    # torch's order of outputs: new values of buffers, then the results
    graph.output((*(copies[node] for node, _ in new_values), *(copies[node] for node in outputs)))
    inputs = [InputSpec(specs[n.name].kind, argument_spec(copies[n]), *_target(specs[n.name])) for n in constants]
    inputs += [InputSpec(InputKind.USER_INPUT, argument_spec(copies[n]), None) for n in arguments]
    results = [OutputSpec(OutputKind.BUFFER_MUTATION, argument_spec(copies[n]), s.target) for n, s in new_values]
    results += [OutputSpec(OutputKind.USER_OUTPUT, argument_spec(copies[n]), None) for n in outputs]
    root = {str(node.target): referenced(module, node) for node in references}
    return Part(_program(whole, root, graph, ExportGraphSignature(inputs, results)), constants, arguments)


def program_of(whole: ExportedProgram, nodes: Sequence[Node]) -> ExportedProgram:
    """The program that a delegate of the calls `nodes`, in the order of `whole`'s own graph, would be given: for a
    partitioner that asks its engine. Weights are shared; a buffer that `whole` changes is an argument."""
    inside, signature = set(nodes), whole.graph_signature
    changed = {*signature.buffers_to_mutate.values()}
    kinds = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
    owned = {s.arg.name for s in signature.input_specs if s.kind in kinds and s.target not in changed}
    results = [node for node in nodes if not is_scalar(node) and any(user not in inside for user in node.users)]
    return part_of(whole, whole.graph_module, nodes, results, lambda node: node.name in owned).program


def _reads(
    nodes: Sequence[Node], specs: dict[str, InputSpec], is_owned: Callable[[Node], bool]
) -> tuple[list[Node], list[Node], list[Node]]:
    """The nodes that the part reads from outside: constants that it owns, arguments, control-flow bodies.

    Arguments are in the order of their first use, as ExecuTorch's; sizes are read last, since a method that has them as
    numbers is to call the same delegate alike (`instances`).
    """
    inside = set(nodes)
    first_use = sorted(nodes, key=is_scalar)
    reads = dict.fromkeys(read for node in first_use for read in node.all_input_nodes if read not in inside)
    constants = [node for node in reads if is_owned(node)]
    constants.sort(key=lambda node: _INPUT_RANK[specs[node.name].kind])  # in torch's order of signatures
    # bodies are no values: each part gets a reference of its own, and shares the module behind it
    references = [node for node in reads if node.op == "get_attr"]
    outside = set(constants) | set(references)
    return constants, [node for node in reads if node not in outside], references


def _program(
    whole: ExportedProgram, root: dict[str, object], graph: Graph, signature: ExportGraphSignature
) -> ExportedProgram:
    names = {spec.target for spec in signature.input_specs if spec.target is not None}
    return ExportedProgram(
        root=root,
        graph=graph,
        graph_signature=signature,
        state_dict={name: whole.state_dict[name] for name in names if name in whole.state_dict},
        range_constraints=whole.range_constraints,
        module_call_graph=[flat_call(len(signature.user_inputs), len(signature.user_outputs))],
        constants={name: whole.constants[name] for name in names if name in whole.constants},
        verifiers=whole.verifiers,
    )


_INPUT_RANK = {InputKind.PARAMETER: 0, InputKind.BUFFER: 1, InputKind.CONSTANT_TENSOR: 2}


def _target(spec: InputSpec) -> tuple[str | None, bool | None]:
    return spec.target, spec.persistent
