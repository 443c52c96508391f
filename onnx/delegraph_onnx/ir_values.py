"""A value of an ONNX graph -> the node that computes it, its readers, the content of a constant; nodes in bodies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["content_of", "made_input", "nodes_within", "producer_of", "put_in_place", "readers_of"]


def producer_of(value: ir.Value | None) -> ir.Node:
    """The node that computes `value`, which is neither an input nor an initialiser."""
    node = None if value is None else value.producer()
    assert node is not None
    return node


def readers_of(value: ir.Value) -> list[ir.Node]:
    """The nodes of the model that read `value`, each as often as it does. Nodes outside the model are left out."""
    return [use.node for use in value.uses() if use.node.graph is not None]


def content_of(constant: ir.Value) -> NDArray[Any]:
    """The content of an initialiser."""
    assert constant.const_value is not None
    return constant.const_value.numpy()


def put_in_place(node: ir.Node, nodes: Sequence[ir.Node]) -> None:
    """Put `nodes` in the place of `node`: the last has its outputs, by the same names, which debug handles go by."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    ir.convenience.replace_nodes_and_values(graph, node, [node], nodes, node.outputs, nodes[-1].outputs)


def made_input(graph: ir.Graph, value: ir.Value) -> None:
    """Make an initialiser of `graph` an input; its content is dropped."""
    content = graph.initializers.pop(str(value.name)).const_value
    assert content is not None
    value.const_value, value.type, value.shape = None, ir.TensorType(content.dtype), ir.Shape(content.shape.numpy())
    graph.inputs.append(value)


def nodes_within(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """Each of `nodes`, followed by the nodes of its bodies (If, Loop, Scan), at whatever depth."""
    for node in nodes:
        yield node
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from nodes_within(attribute.as_graph())
