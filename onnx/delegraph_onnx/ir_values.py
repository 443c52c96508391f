"""A value of an ONNX graph -> the node that gives it, those that read it, what a constant holds; nodes in bodies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["content_of", "made_input", "nodes_within", "producer_of", "put_in_place", "readers_of"]


def producer_of(value: ir.Value | None) -> ir.Node:
    """The node that gives `value`, which is neither an input nor an initialiser."""
    node = None if value is None else value.producer()
    assert node is not None
    return node


def readers_of(value: ir.Value) -> list[ir.Node]:
    """The nodes of the model that read `value`, each as often as it does: others were left out of it."""
    return [use.node for use in value.uses() if use.node.graph is not None]


def content_of(constant: ir.Value) -> NDArray[Any]:
    """What an initialiser holds."""
    assert constant.const_value is not None
    return constant.const_value.numpy()


def put_in_place(node: ir.Node, nodes: Sequence[ir.Node]) -> None:
    """Put `nodes` in the place of `node`: the last gives what it gave, by the same names, which debug handles go by."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    ir.convenience.replace_nodes_and_values(graph, node, [node], nodes, node.outputs, nodes[-1].outputs)


def made_input(graph: ir.Graph, value: ir.Value) -> None:
    """Make an initialiser of `graph` an input, of which the content is forgotten."""
    held = graph.initializers.pop(str(value.name)).const_value
    assert held is not None
    value.const_value, value.type, value.shape = None, ir.TensorType(held.dtype), ir.Shape(held.shape.numpy())
    graph.inputs.append(value)


def nodes_within(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """Each of `nodes`, followed by those of its bodies, of If, Loop and Scan, at whatever depth."""
    for node in nodes:
        yield node
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from nodes_within(attribute.as_graph())
