"""Where nodes keep what they came from (ExecuTorch `exir/debug_handle_utils.py`)."""

from __future__ import annotations

from torch.fx import Node

__all__ = ["DEBUG_HANDLE_KEY", "FROM_NODE_KEY", "UNSET_DEBUG_HANDLE", "get_greatest_ancestor_node_identifier"]

FROM_NODE_KEY = "from_node"
DEBUG_HANDLE_KEY = "debug_handle"
UNSET_DEBUG_HANDLE = 0


def get_greatest_ancestor_node_identifier(node: Node) -> str:
    """The name and graph of the first node that `node` was made from: `"name.graph_id"`."""
    source = node.meta[FROM_NODE_KEY][-1]
    while source.from_node:
        source = source.from_node[-1]
    return f"{source.name}.{source.graph_id}"
