"""Making an ExportedProgram from an edited graph, without copying weights and without re-tracing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import count
from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import CodeGen
from torch.fx.node import Argument

from delegraph.aot.graph.bodies import attributes, graph_modules
from delegraph.aot.torch_internals import LazyGraphModule, Verifier, common_getitem_elimination

__all__ = [
    "REGISTERED_NAME",
    "argument_spec",
    "as_torch_loads",
    "copy_program",
    "rebuild",
    "unused_name",
    "with_attributes",
    "with_buffers",
    "with_graph",
    "with_names",
    "with_ranges",
]

REGISTERED_NAME: Final = "DELEGRAPH"
"""The verifier's name in torch's table of verifiers by dialect. Its `"EDGE"` is ExecuTorch's, whose operators are of
another class, wherever that is imported, before this package or after it."""


class _EdgeProgramVerifier(Verifier):
    """torch's own check of a functional program; what each dialect admits beyond that is in `dialects.py`."""

    dialect = REGISTERED_NAME

    def allowed_getattr_types(self) -> tuple[type, ...]:
        """Tensors too: folding puts a constant where its computation stood."""
        return (*super().allowed_getattr_types(), torch.Tensor)


_EdgeProgramVerifier.dialect = "EDGE"  # what programs say of themselves, as in ExecuTorch


def rebuild(
    program: ExportedProgram,
    root: Mapping[str, object],
    graph: Graph,
    output_specs: Sequence[OutputSpec],
    constants: Mapping[str, torch.Tensor] | None = None,
) -> ExportedProgram:
    """`program` with another graph.

    `root` holds what get_attr nodes refer to; `output_specs` correspond to the graph's outputs in order (their argument
    names are refreshed); placeholders that the old signature does not know name an entry of `constants` in
    `meta["constant_name"]`. State and the old constants are shared with `program`.
    """
    _take_items_of_lists(graph)
    for body in root.values():
        for _, module in graph_modules(body) if isinstance(body, GraphModule) else ():
            _take_items_of_lists(module.graph)
    new = _on_trust(program, root, graph, output_specs)
    new._constants.update(constants or {})
    new._verifiers = [_EdgeProgramVerifier]
    common_getitem_elimination(new.graph_module, new.graph_signature, new.module_call_graph)
    new.validate()
    return new


def _take_items_of_lists(graph: Graph) -> None:
    """Let an item of a list of values be that value: a pass that replaced a call of several results leaves some."""
    for node in graph.find_nodes(op="call_function", target=operator.getitem):
        values, index = node.args
        item = values[index] if isinstance(values, (list, tuple)) and isinstance(index, int) else None
        if isinstance(item, Node):
            node.replace_all_uses_with(item)
            graph.erase_node(node)


def with_graph(program: ExportedProgram, root: Mapping[str, object], graph: Graph) -> ExportedProgram:
    """`program` with another graph of the same inputs and outputs, as `rebuild` makes it but not checked by torch."""
    return _on_trust(program, root, graph, program.graph_signature.output_specs)


def with_names(program: ExportedProgram, renamed: Mapping[str, str]) -> ExportedProgram:
    """`program` with other names for its parameters, buffers and constants; the graph and the tensors are shared."""
    signature = program.graph_signature
    kept = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
    new = copy(program)
    new._graph_signature = ExportGraphSignature(
        [replace(spec, target=_renamed(spec.target, renamed)) for spec in signature.input_specs],
        [
            replace(spec, target=_renamed(spec.target, renamed)) if spec.kind in kept else spec
            for spec in signature.output_specs
        ],
    )
    new._state_dict = {renamed.get(name, name): tensor for name, tensor in program.state_dict.items()}
    new._constants = {renamed.get(name, name): constant for name, constant in program.constants.items()}
    return new


def as_torch_loads(program: ExportedProgram) -> ExportedProgram:
    """`program`, of torch's own operators, as one that `torch.export.load` reads: our verifier it does not know."""
    new = copy(program)
    new._verifiers = [Verifier]
    return new


def with_buffers(program: ExportedProgram, placeholders: Collection[str]) -> ExportedProgram:
    """`program` in which those of its lifted constants are buffers, which a `state_dict` does not have."""
    specs = program.graph_signature.input_specs
    lifted = {spec.arg.name for spec in specs if spec.kind is InputKind.CONSTANT_TENSOR} & set(placeholders)
    if not lifted:
        return program
    new = copy(program)
    new._graph_signature = ExportGraphSignature(
        [replace(s, kind=InputKind.BUFFER, persistent=False) if s.arg.name in lifted else s for s in specs],
        list(program.graph_signature.output_specs),
    )
    return new


def with_ranges(program: ExportedProgram, ranges: Mapping[Any, Any]) -> ExportedProgram:
    """`program` with other ranges for some of its symbols; the rest is shared."""
    new = copy(program)
    new._range_constraints = {**program.range_constraints, **ranges}
    return new


def _renamed(name: str | None, renamed: Mapping[str, str]) -> str | None:
    return name if name is None else renamed.get(name, name)


def _on_trust(
    program: ExportedProgram, root: Mapping[str, object], graph: Graph, output_specs: Sequence[OutputSpec]
) -> ExportedProgram:
    """The program that torch's constructor would make, unchecked, and without Python code until somebody asks for it.

    Generating the code is most of the constructor's cost, and nothing here runs it: an interpreter does.
    """
    graph.set_codegen(CodeGen())
    new = copy(program)
    new._graph_module = LazyGraphModule(dict(root), graph)
    new._graph_module.meta = dict(program.graph_module.meta)
    new._graph_signature = _signature(program, graph, output_specs)
    new._state_dict, new._constants = dict(program.state_dict), dict(program.constants)
    new._range_constraints = dict(program.range_constraints)
    new._module_call_graph = list(program.module_call_graph)
    return new


def _signature(program: ExportedProgram, graph: Graph, output_specs: Sequence[OutputSpec]) -> ExportGraphSignature:
    """`program`'s signature, its names those of `graph`."""
    input_specs = _input_specs(program.graph_signature.input_specs, graph.find_nodes(op="placeholder"))
    outputs = graph.output_node().args[0]
    assert isinstance(outputs, (tuple, list)) and len(outputs) == len(output_specs)
    refreshed = [
        OutputSpec(spec.kind, argument_spec(value), spec.target)
        for spec, value in zip(output_specs, outputs, strict=True)
    ]
    return ExportGraphSignature(input_specs, refreshed)


def _input_specs(old: Sequence[InputSpec], placeholders: Sequence[Node]) -> list[InputSpec]:
    """The input specs of `placeholders`, found by name; where the names are others, but as many, by position."""
    by_name = {spec.arg.name: spec for spec in old}
    if len(old) == len(placeholders) and any(_is_unknown(node, by_name) for node in placeholders):
        return [
            replace(spec, arg=replace(spec.arg, name=node.name)) for spec, node in zip(old, placeholders, strict=True)
        ]
    return [by_name.get(node.name) or _constant_spec(node) for node in placeholders]


def _is_unknown(node: Node, by_name: Mapping[str, InputSpec]) -> bool:
    return node.name not in by_name and "constant_name" not in node.meta


def copy_program(program: ExportedProgram) -> ExportedProgram:
    """A program whose graphs, those of control-flow bodies included, can be edited without touching the original.

    Weights and delegates are shared.
    """
    graph = Graph()
    mapping: dict[Node, Node] = {}
    outputs = graph.graph_copy(program.graph, mapping)
    for old, new in mapping.items():
        new.name = old.name  # the signature refers to it; the graph would rename `input`, a Python builtin
    output = graph.output(outputs)
    output.meta = dict(program.graph.output_node().meta)
    return with_graph(program, _with_copied_bodies(attributes(program.graph_module)), graph)


def _with_copied_bodies(root: Mapping[str, object]) -> dict[str, object]:
    return {
        name: _copied_body(attribute) if isinstance(attribute, GraphModule) else attribute
        for name, attribute in root.items()
    }


def _copied_body(body: GraphModule) -> GraphModule:
    graph = Graph()
    graph.output(graph.graph_copy(body.graph, {})).meta = dict(body.graph.output_node().meta)
    return LazyGraphModule(_with_copied_bodies(attributes(body)), graph)


def with_attributes(program: ExportedProgram, changed: Callable[[object], object]) -> ExportedProgram:
    """`program` with `changed` of what its get_attr nodes refer to, in bodies of control flow too; the graphs and their
    nodes are the same."""
    return with_graph(program, _changed_attributes(program.graph_module, changed), program.graph)


def _changed_attributes(module: GraphModule, changed: Callable[[object], object]) -> dict[str, object]:
    new: dict[str, object] = {}
    for name, attribute in attributes(module).items():
        new[name] = changed(attribute)
        if isinstance(attribute, GraphModule):
            new[name] = body = LazyGraphModule(_changed_attributes(attribute, changed), attribute.graph)
            body.meta = attribute.meta
    return new


def unused_name(prefix: str, own: Collection[str], others: Collection[str]) -> str:
    """`<prefix>_<n>` for the next of `own`, a growing collection of such names, unless `others` have it."""
    return next(name for number in count(len(own)) if (name := f"{prefix}_{number}") not in own and name not in others)


def argument_spec(value: Argument) -> ArgumentSpec:
    """The signature entry of a graph value."""
    if not isinstance(value, Node):
        assert value is None or isinstance(value, (int, float, bool, str))
        return ConstantArgument(name="", value=value)
    val = value.meta.get("val")
    kinds = ((torch.SymInt, SymIntArgument), (torch.SymFloat, SymFloatArgument), (torch.SymBool, SymBoolArgument))
    for symbolic, kind in kinds:
        if isinstance(val, symbolic):
            return kind(name=value.name)
    return TensorArgument(name=value.name)


def _constant_spec(node: Node) -> InputSpec:
    return InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), node.meta["constant_name"])
