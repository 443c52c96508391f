"""An ONNX graph -> all that lies in it, in the bodies of If, Loop and Scan as well, at whatever depth."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
import onnx_ir as ir

__all__ = ["graphs_within", "nodes_within"]


def graphs_within(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """`graph` itself, then the bodies of its nodes, each followed by those within it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from graphs_within(attribute.g)


def nodes_within(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """Each of `nodes`, followed by those of its bodies."""
    for node in nodes:
        yield node
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                yield from nodes_within(attribute.as_graph())
