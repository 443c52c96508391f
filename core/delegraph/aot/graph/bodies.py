"""GraphModule -> the graphs in it: the one walk over a method's graph and the bodies of its control flow."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

__all__ = [
    "all_nodes",
    "attributes",
    "bodies",
    "graph_modules",
    "output_producer",
    "output_values",
    "referenced",
]


def graph_modules(root: GraphModule, path: str = "") -> Iterator[tuple[str, GraphModule]]:
    """(path, module) of a graph and of the control-flow bodies in it, at any depth; the root's path is ""."""
    yield path, root
    for name, body in bodies(root).items():
        yield from graph_modules(body, f"{path}.{name}" if path else name)


def bodies(module: GraphModule) -> dict[str, GraphModule]:
    """The control-flow bodies that `module`'s own graph refers to, by name; not what lies in delegates."""
    return {name: attribute for name, attribute in attributes(module).items() if isinstance(attribute, GraphModule)}


def all_nodes(root: GraphModule) -> Iterator[Node]:
    """The nodes of a graph and of the control-flow bodies in it."""
    for _, module in graph_modules(root):
        yield from module.graph.nodes


def attributes(module: GraphModule) -> dict[str, Any]:
    """The attributes that the get_attr nodes of `module`'s own graph refer to, by name: bodies, delegates, tensors."""
    return {str(node.target): referenced(module, node) for node in module.graph.find_nodes(op="get_attr")}


def referenced(module: torch.nn.Module, node: Node) -> Any:
    """The attribute that the get_attr `node` of `module`'s graph refers to."""
    return operator.attrgetter(str(node.target))(module)


def output_values(graph: Graph) -> list[Any]:
    """The values that the graph returns, flat: nodes and plain values."""
    values = graph.output_node().args[0]
    return list(values) if isinstance(values, (tuple, list)) else [values]


def output_producer(output: object) -> tuple[Node, int] | None:
    """The call, and which of its results, that makes a tensor output; None for inputs, scalars and constants."""
    if not isinstance(output, Node) or not isinstance(output.meta.get("val"), torch.Tensor):
        return None
    if output.target is operator.getitem:
        source, position = output.args
        return (source, position) if isinstance(source, Node) and source.op == "call_function" else None  # type: ignore[return-value]
    return (output, 0) if output.op == "call_function" else None
