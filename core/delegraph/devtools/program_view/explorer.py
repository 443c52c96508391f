"""Graphs and overlays -> the JSON of Model Explorer (`ai-edge-model-explorer`): graphs, and node data beside them.

Its fields are those of `model_explorer.graph_builder` and `model_explorer.node_data_builder`, versions 0.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from delegraph.devtools.program_view.graph import GraphView, ViewNode
from delegraph.devtools.program_view.overlays import Overlay
from delegraph.devtools.program_view.page import Shown

__all__ = ["collection", "graph_json", "node_data"]

_COLOURS: Final = ("#e3e6ea", "#ffe2c4", "#cfe5ff", "#d5f0d2", "#ead9fb", "#fff0b3", "#ffd6de", "#c9efee")
"""By partition: backgrounds under dark text."""
_GRADIENT: Final = ((0, "#fffaeb"), (0.5, "#fa963c"), (1, "#8c1814"))


def collection(shown: Shown) -> dict[str, Any]:
    """A collection with a graph for each method."""
    return {"label": shown.name, "graphs": [graph_json(graph) for graph in shown.graphs]}


def graph_json(graph: GraphView) -> dict[str, Any]:
    """A method as a graph; modules are namespaces."""
    return {"id": graph.method, "nodes": [_node(node, graph) for node in graph.nodes]}


def node_data(shown: Shown, overlay: Overlay) -> dict[str, Any]:
    """The numbers of an overlay as node data, by graph."""
    return {
        graph.method: {
            "name": f"{overlay.name}, {overlay.measure.unit}",
            "results": {
                node.id: {"value": value}
                for node in graph.nodes
                if (value := overlay.values.get((graph.method, node.id))) is not None
            },
            "gradient": [{"stop": stop, "bgColor": colour} for stop, colour in _GRADIENT],
        }
        for graph in shown.graphs
    }


def _node(node: ViewNode, graph: GraphView) -> dict[str, Any]:
    return {
        "id": node.id,
        "label": node.label,
        "namespace": node.module.replace("/", "_").replace(".", "/"),
        "attrs": [{"key": key, "value": value} for key, value in _attributes(node, graph) if value],
        "incomingEdges": [
            {"sourceNodeId": source, "sourceNodeOutputId": "0", "targetNodeInputId": str(position)}
            for position, source in enumerate(node.inputs)
        ],
        "outputsMetadata": [
            {"id": str(position), "attrs": list(_result(text))} for position, text in enumerate(node.results)
        ],
        "style": {"backgroundColor": _COLOURS[node.partition % len(_COLOURS)]},
    }


def _attributes(node: ViewNode, graph: GraphView) -> Iterator[tuple[str, str]]:
    yield "operator", node.operator
    yield "runs on", graph.partitions[node.partition]
    yield "left because", node.reason
    yield "line", _listed(node.lines)
    yield "memory", _listed(node.memory)
    yield "weights", _listed(node.weights)


def _result(text: str) -> Iterator[dict[str, str]]:
    """Model Explorer draws `shape` on edges."""
    dtype, _, shape = text.partition(" ")
    yield {"key": "shape", "value": f"{dtype}{shape}"}


def _listed(texts: Iterable[str]) -> str:
    return "\n".join(texts)
