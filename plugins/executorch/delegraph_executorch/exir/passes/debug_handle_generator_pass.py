"""GraphModule -> the same, every call with a debug handle: one for all that a node of the exported program became."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from delegraph_executorch.exir.graph_module import bfs_trace_with_node_process
from delegraph_executorch.exir.pass_base import ExportPass, PassResult

__all__ = ["DebugHandleGeneratorPass", "generate_missing_debug_handles"]


class DebugHandleGeneratorPass(ExportPass):
    """Numbers calls from 1 on by where they come from, in bodies of control flow too, in place."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Set `meta["debug_handle"]` anew."""
        handles: dict[str, int] = {}

        def number(node: Node) -> None:
            if node.op not in ("placeholder", "output"):
                node.meta["debug_handle"] = handles.setdefault(_origin(node), len(handles) + 1)

        bfs_trace_with_node_process(graph_module, number)
        return PassResult(graph_module, True)


def generate_missing_debug_handles(ep: ExportedProgram) -> None:
    """Number, in place, the nodes that have no debug handle yet, from the largest that there is on."""
    nodes: list[Node] = []
    bfs_trace_with_node_process(ep.graph_module, nodes.append)
    largest = max((node.meta.get("debug_handle") or 0 for node in nodes), default=0)
    for node in nodes:
        if not node.meta.get("debug_handle"):
            largest += 1
            node.meta["debug_handle"] = largest


def _origin(node: Node) -> str:
    """The node of the first graph that `node` comes from, or `node`."""
    if not node.meta.get("from_node"):
        return f"{id(node.graph)}.{node.name}"
    source = node.meta["from_node"][-1]
    while source.from_node:
        source = source.from_node[-1]
    return f"{source.name}.{source.graph_id}"
