"""A module that was made from a program and edited + that program -> a program of the same inputs and sizes.

    before                                                 after
        w = get_attr[head.weight_int8]                     w = placeholder[b_head_weight_int8]
        v = dequantized_weight(w, s, None, [8, 8], …)      v = dequantize_per_channel(w, s, …)
        y = linear(x, v)                                   y = linear(x, v)

`torch.export` would trace the whole module again, and find symbols of its own for dynamic sizes. Here Python functions
are traced alone, once for arguments of one form, and only what follows a change gets a fake value anew; all else keeps
its own, and the line of the user's code.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.fx.node import Argument
from torch.utils import _pytree as pytree

from delegraph.aot.functional.decompose import call_form, fresh, of_inputs
from delegraph.aot.functional.functionalize import fake_mode_of
from delegraph.aot.graph.bodies import attributes, bodies, graph_modules, output_values, referenced
from delegraph.aot.graph.edit import argument_spec
from delegraph.aot.graph.fake_values import fake_values, several
from delegraph.aot.quantize.weights.body_weights import weights_out_of_bodies
from delegraph.aot.quantize.weights.names import name_constants
from delegraph.aot.torch_internals import SYM_OPERATORS, TrainingIRVerifier
from delegraph.errors import LoweringError

__all__ = ["as_program", "flat_inputs", "positional_inputs"]


def as_program(method: str, module: GraphModule, program: ExportedProgram) -> ExportedProgram:
    """`module`, which is edited, as a program: without the weights that it does not read, and with operands for those
    that bodies of control flow have.

    Raises `LoweringError` if an operator does not take what it is given.
    """
    traced = _Traced(fake_mode_of(program))
    for _, part in graph_modules(module):
        name_constants(part)
        traced.value_constants(part)
    _drop_unread(module)  # whose names are free then for what bodies have
    weights_out_of_bodies(module)
    _drop_unread(module)
    try:
        traced.complete(module)
    except Exception as cause:
        raise LoweringError(f"torch cannot trace the quantized method {method!r}: {cause}") from cause
    return _lifted(module, program)


@dataclass(frozen=True, slots=True)
class _Traced:
    """The fake values of one program, and the graphs of Python functions by the form of their arguments."""

    mode: FakeTensorMode
    graphs: dict[object, GraphModule] = field(default_factory=dict)

    def value_constants(self, module: GraphModule) -> None:
        """Give what reads a tensor of `module`'s the fake value of that tensor."""
        for node in module.graph.find_nodes(op="get_attr"):
            tensor = referenced(module, node)
            if isinstance(tensor, torch.Tensor):
                node.meta["val"] = self.mode.from_tensor(tensor, static_shapes=True)

    def complete(self, module: GraphModule) -> None:
        """Edit `module` and its bodies: only operators are called, and each node has its fake value."""
        for body in bodies(module).values():
            self.complete(body)
        changed: set[Node] = set()
        for node in list(module.graph.nodes):
            if node.op == "call_module":  # what the inputs have to be, which the program's own symbols say
                module.graph.erase_node(node)
            elif node.op == "call_method" or (node.op == "call_function" and not _is_operator(node.target)):
                self._inline(node, changed)
            elif node.op == "call_function" and ("val" not in node.meta or changed.intersection(node.all_input_nodes)):
                self._evaluate(node, changed)
        module.graph.eliminate_dead_code()
        module.recompile()

    def _evaluate(self, node: Node, changed: set[Node]) -> None:
        """Give `node` the value that its operator has now; one of a size that depends on values keeps its symbol."""
        known = node.meta.get("val")
        if known is not None and (isinstance(node.target, HigherOrderOperator) or _unbacked(known)):
            return
        with self.mode, torch.no_grad():
            value = node.target(*fake_values(node.args), **fake_values(node.kwargs))  # type: ignore[operator]
        if known is None or call_form(value) != call_form(known):
            node.meta["val"] = value
            changed.add(node)

    def _inline(self, node: Node, changed: set[Node]) -> None:
        """Let the operators that the function of `node` calls stand in its place."""
        function = getattr(torch.Tensor, str(node.target)) if node.op == "call_method" else node.target
        assert callable(function)
        arguments, spec = pytree.tree_flatten((node.args, node.kwargs))
        inputs = [position for position, argument in enumerate(arguments) if isinstance(argument, Node)]
        flat = [fake_values(argument) for argument in arguments]
        key = (function, spec, call_form(flat))
        if key not in self.graphs:
            self.graphs[key] = self._graph_of(function, flat, spec, inputs)
        graph = self.graphs[key].graph
        calls = dict(zip(graph.find_nodes(op="placeholder"), (arguments[i] for i in inputs), strict=True))
        with node.graph.inserting_before(node):
            result = node.graph.graph_copy(graph, calls)
        for own, copied in calls.items():
            if own.op == "call_function":
                copied.meta = {**node.meta, "val": own.meta["val"]}
                changed.add(copied)
        _replace(node, result)

    def _graph_of(
        self, function: Callable[..., object], flat: Sequence[object], spec: pytree.TreeSpec, inputs: Sequence[int]
    ) -> GraphModule:
        call = of_inputs(function, flat, spec, inputs)
        with self.mode, torch.no_grad():
            return make_fx(call, tracing_mode="real", pre_dispatch=True)(*(fresh(flat[i]) for i in inputs))


def _unbacked(value: object) -> bool:
    """Whether there are sizes in it that depend on values."""
    return any(free_unbacked_symbols(leaf) for leaf in pytree.tree_leaves(value))


def _replace(node: Node, result: Argument) -> None:
    """Let `result`, a node or several, stand for `node`, whose elements are read where there are several."""
    if isinstance(result, Node):
        node.replace_all_uses_with(result)
    else:
        for reader in list(node.users):
            position = reader.args[1]
            assert isinstance(position, int)
            element = several(result)[position]
            assert isinstance(element, Node)
            reader.replace_all_uses_with(element)
            node.graph.erase_node(reader)
    node.graph.erase_node(node)


def _is_operator(target: object) -> bool:
    """Whether a program may call it."""
    return isinstance(target, OpOverload | HigherOrderOperator) or target is operator.getitem or target in SYM_OPERATORS


def _lifted(module: GraphModule, program: ExportedProgram) -> ExportedProgram:
    """`module`, of operators, as a program, whose tensors are inputs of its graph: parameters, buffers, constants."""
    root = attributes(module)
    tensors = {name: root.pop(name) for name in [*root] if isinstance(root[name], torch.Tensor)}
    lifted = sorted((_spec(module, name) for name in tensors), key=lambda spec: [*_PREFIXES].index(spec.kind))
    theirs = [spec for spec in program.graph_signature.input_specs if spec.kind is InputKind.USER_INPUT]
    for node in module.graph.nodes:
        if isinstance(node.target, OpOverload):
            node.name = node.target.overloadpacket.__name__  # as torch.export names calls; the new graph numbers them
    graph, values = _with_inputs(lifted, theirs, module.graph)
    graph.output(graph.graph_copy(module.graph, values))
    results = [OutputSpec(OutputKind.USER_OUTPUT, argument_spec(value), None) for value in output_values(graph)]
    stored = {str(spec.target) for spec in lifted if spec.kind is InputKind.PARAMETER or spec.persistent}
    return ExportedProgram(
        root,
        graph,
        ExportGraphSignature([*lifted, *theirs], results),
        {name: tensor for name, tensor in tensors.items() if name in stored},
        dict(program.range_constraints),
        [entry for entry in program.module_call_graph if not entry.fqn],
        program.example_inputs,
        {name: tensor for name, tensor in tensors.items() if name not in stored},
        verifiers=[TrainingIRVerifier],
    )


def _with_inputs(
    lifted: Sequence[InputSpec], theirs: Sequence[InputSpec], old: Graph
) -> tuple[Graph, dict[Node, Node]]:
    """A graph that has only inputs, for the lifted ones and for those of `old`; and which of them stands for which node
    there."""
    graph, values = Graph(), dict[Node, Node]()
    readers: dict[str, list[Node]] = {}
    for node in old.find_nodes(op="get_attr"):
        readers.setdefault(str(node.target), []).append(node)
    for spec in lifted:
        placeholder = graph.placeholder(spec.arg.name)
        placeholder.meta["val"] = readers[str(spec.target)][0].meta["val"]
        spec.arg.name = placeholder.target = placeholder.name  # which no other has
        values |= dict.fromkeys(readers[str(spec.target)], placeholder)
    for node, spec in zip(old.find_nodes(op="placeholder"), theirs, strict=True):
        values[node] = copied = graph.node_copy(node)
        copied.name = copied.target = spec.arg.name  # graphs rename `input`, a Python builtin
    return graph, values


_PREFIXES: Final = {InputKind.PARAMETER: "p", InputKind.BUFFER: "b", InputKind.CONSTANT_TENSOR: "c"}
"""The kinds of lifted tensors in the order in which torch.export has them, and how it begins their names."""


def _spec(module: GraphModule, name: str) -> InputSpec:
    path, _, attribute = name.rpartition(".")
    owner = module.get_submodule(path)
    if attribute in owner._buffers:
        kind, persistent = InputKind.BUFFER, attribute not in owner._non_persistent_buffers_set
    else:
        kind = InputKind.PARAMETER if attribute in owner._parameters else InputKind.CONSTANT_TENSOR
        persistent = None
    argument = TensorArgument(f"{_PREFIXES[kind]}_{name.replace('.', '_')}")
    return InputSpec(kind, argument, name, persistent)


def positional_inputs(program: ExportedProgram) -> int:
    """How many of the inputs are passed by position."""
    return len(program.call_spec.in_spec.child(0).children())


def flat_inputs(program: ExportedProgram, arguments: tuple[Sequence[object], Mapping[str, object]]) -> list[object]:
    """The leaves of the arguments of one call, in the order of the program's inputs."""
    args, kwargs = arguments
    order = program.call_spec.in_spec.child(1).context or ()
    return pytree.tree_leaves((tuple(args), {name: kwargs[name] for name in order}))


def _drop_unread(module: GraphModule) -> None:
    """Take out the parameters and buffers that no call reads, of the bodies in it as well."""
    for _, part in graph_modules(module):
        read, of_bodies = attributes(part), tuple(f"{name}." for name in bodies(part))
        tensors = [*part.named_parameters(remove_duplicate=False), *part.named_buffers(remove_duplicate=False)]
        for name, _ in tensors:
            if name not in read and not name.startswith(of_bodies):
                path, _, attribute = name.rpartition(".")
                delattr(part.get_submodule(path), attribute)
