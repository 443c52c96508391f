"""Nodes of a graph -> the specs of their tensors, and from which node to which these live."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import torch
from torch._ops import OpOverload
from torch.export import ExportGraphSignature
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from delegraph.errors import LoweringError
from delegraph_executorch.exir import memory
from delegraph_executorch.exir.dialect_ops import output_to_aliased_input_map
from delegraph_executorch.exir.schema import TensorShapeDynamism
from delegraph_executorch.exir.tensor import TensorSpec

# ---- what nodes are --------------------------------------------------------------------------------


def _operator(node: Node) -> OpOverload | None:
    return node.target if isinstance(node.target, OpOverload) else None


def _is_out_var_node(node: Node) -> bool:
    """Whether `node` writes its results into tensors that it is given."""
    op = _operator(node)
    return op is not None and any(argument.is_out for argument in op._schema.arguments)


def _is_inplace_node(node: Node) -> bool:
    """Whether the results of `node` are arguments that it changes."""
    op = _operator(node)
    return op is not None and not _is_out_var_node(node) and bool(output_to_aliased_input_map(op._schema))


def _is_mutable_buffer(node: Node, graph_signature: ExportGraphSignature | None = None) -> bool:
    """Whether `node` is the placeholder of a buffer that the program changes."""
    if graph_signature is None or node.op != "placeholder":
        return False
    name = graph_signature.inputs_to_buffers.get(str(node.target))
    return name is not None and name in graph_signature.buffers_to_mutate.values()


def filter_nodes(inputs: Iterable[Any]) -> list[Node]:
    """The nodes among `inputs`, those in lists and dicts too."""
    return [leaf for leaf in pytree.tree_leaves(list(inputs)) if isinstance(leaf, Node)]


def get_node_tensor_specs(node: Node) -> list[TensorSpec]:
    """The specs of the results of `node`; a view has those of what it shows."""
    source = node.args[0] if node.target is memory.view else node
    specs = source.meta.get("spec") if isinstance(source, Node) else None
    given = specs if isinstance(specs, (list, tuple)) else [specs]
    return [spec for spec in given if isinstance(spec, TensorSpec)]


def get_graph_input_tensors(
    nodes: Iterable[Node], graph_signature: ExportGraphSignature | None = None
) -> set[TensorSpec]:
    """The specs of placeholders, but for buffers that the program changes."""
    inputs = [node for node in nodes if node.op == "placeholder" and not _is_mutable_buffer(node, graph_signature)]
    return {spec for node in inputs for spec in get_node_tensor_specs(node)}


def get_graph_output_tensors(nodes: Iterable[Node]) -> set[TensorSpec]:
    """The specs of what the graph returns."""
    return {spec for node in nodes if node.op == "output" for spec in get_node_tensor_specs(node)}


def mutable_buffer_specs(nodes: Iterable[Node], graph_signature: ExportGraphSignature | None) -> set[TensorSpec]:
    """The specs of buffers that the program changes."""
    return {spec for node in nodes if _is_mutable_buffer(node, graph_signature) for spec in get_node_tensor_specs(node)}


def _alias_inplace_result_specs(node: Node) -> None:
    """Give results that are changed arguments those arguments' specs: they are one tensor in one place."""
    op = _operator(node)
    specs = node.meta.get("spec")
    if op is None or specs is None:
        return
    results = list(specs) if isinstance(specs, (list, tuple)) else [specs]
    for result, position in output_to_aliased_input_map(op._schema).items():
        name = op._schema.arguments[position].name
        argument = node.args[position] if position < len(node.args) else node.kwargs.get(name)
        spec = argument.meta.get("spec") if isinstance(argument, Node) else None
        if isinstance(spec, TensorSpec) and result < len(results):
            results[result] = spec
    node.meta["spec"] = type(specs)(results) if isinstance(specs, (list, tuple)) else results[0]


def collect_specs_from_nodes(
    nodes: Iterable[Node],
    graph_signature: ExportGraphSignature | None = None,
    ignore_graph_input: bool = False,
    ignore_graph_output: bool = False,
    ignore_mutable_buffers: bool = False,
    ignore_const: bool = True,
    ignore_out_var_node: bool = True,
    dedup: bool = True,
    do_assertion: bool = True,
    ignore_dynamic_unbound_tensor: bool = True,
) -> Iterator[TensorSpec]:
    """The specs of `nodes`, each once if `dedup`, without those that an argument says to leave out.

    With `do_assertion`, a call other than of memory, control flow or a delegate raises `LoweringError`.
    """
    nodes = list(nodes)
    ignored: set[TensorSpec] = set()
    if ignore_graph_input:
        ignored |= get_graph_input_tensors(nodes, graph_signature)
    if ignore_graph_output:
        ignored |= get_graph_output_tensors(nodes)
    if ignore_mutable_buffers:
        ignored |= mutable_buffer_specs(nodes, graph_signature)
    seen: set[TensorSpec] = set()
    for node in nodes:
        if node.op == "get_attr" or (ignore_out_var_node and _is_out_var_node(node)):
            continue
        if _is_inplace_node(node):
            _alias_inplace_result_specs(node)
            continue
        specs = get_node_tensor_specs(node)
        if do_assertion and specs:
            _check_is_memory(node)
        for spec in specs:
            unbound = spec.shape_dynamism == TensorShapeDynamism.DYNAMIC_UNBOUND
            constant = spec.const and not node.meta.get("weight_has_gradient", False)
            if spec in ignored or (ignore_dynamic_unbound_tensor and unbound) or (ignore_const and constant):
                continue
            if dedup and spec in seen:
                continue
            seen.add(spec)
            yield spec


def _check_is_memory(node: Node) -> None:
    higher_order = isinstance(node.target, torch._ops.HigherOrderOperator)
    known = (memory.alloc, memory.view, operator.getitem)
    if node.op not in ("placeholder", "output") and node.target not in known and not higher_order:
        raise LoweringError(
            f"{node.name} calls {node.target}, which allocates nothing: run ToOutVarPass before planning"
        )


# ---- lifetimes -------------------------------------------------------------------------------------


def update_tensor_lifetime(
    node: Node, spec: TensorSpec, node_idx: int, max_node_idx: int, gs: ExportGraphSignature | None = None
) -> None:
    """Make `spec` alive at `node`, the `node_idx`-th: inputs from the start, buffers that are changed to the end."""
    start, end = spec.lifetime
    first = 0 if node.op == "placeholder" else node_idx
    last = max_node_idx if _is_mutable_buffer(node, gs) else node_idx
    spec.lifetime = [first if start is None else min(start, first), last if end is None else max(end, last)]


def update_all_tensors_lifetime(
    graph_module: GraphModule, graph_signature: ExportGraphSignature | None = None
) -> set[TensorSpec]:
    """Set the lifetimes of all specs of a graph, in indices of its nodes; the specs."""
    specs: set[TensorSpec] = set()
    nodes = list(graph_module.graph.nodes)
    for index, node in enumerate(nodes):
        used = filter_nodes(chain([node], node.args, node.kwargs.values()))
        for spec in collect_specs_from_nodes(
            used,
            graph_signature,
            ignore_const=False,
            ignore_out_var_node=False,
            dedup=False,
            do_assertion=False,
            ignore_dynamic_unbound_tensor=False,
        ):
            update_tensor_lifetime(node, spec, index, len(nodes) - 1, graph_signature)
            specs.add(spec)
    _extend_storage_base_lifetimes(specs)
    return specs


def _extend_storage_base_lifetimes(specs: Iterable[TensorSpec]) -> None:
    """Let every tensor live as long as those that lie in its memory."""
    for spec in specs:
        start, end = lifetime_of(spec)
        for base in spec.storage_chain()[1:]:
            first, last = lifetime_of(base)
            base.lifetime = [min(first, start), max(last, end)]


def lifetime_of(spec: TensorSpec) -> tuple[int, int]:
    """The first and the last node that use it. Raises `LoweringError` where that is not known yet."""
    start, end = spec.lifetime
    if start is None or end is None:
        raise LoweringError(f"{spec} has no lifetime yet: run update_all_tensors_lifetime before")
    return start, end
