"""ExecuTorch's `executorch.exir.graph_module`: a graph -> the bodies of its control flow, and who calls them.

New code walks with `delegraph.aot.graph_modules`, which goes to any depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node

__all__ = [
    "LeafValue",
    "bfs_trace_with_node_process",
    "get_cond_while_submodules",
    "get_control_flow_submodules",
    "get_scan_submodules",
]

LeafValue: TypeAlias = (
    torch.Tensor
    | str
    | int
    | float
    | bool
    | complex
    | torch.dtype
    | torch.device
    | torch.memory_format
    | torch.layout
    | None
)

Body: TypeAlias = tuple[str, GraphModule, Node]
"""The name of a body in its module, the body, and the node that calls it."""

Positions: TypeAlias = dict[Any, tuple[int, ...]]
"""Operator -> where its bodies stand among its arguments."""

_higher_order: Any = torch.ops.higher_order
_COND: Positions = {_higher_order.cond: (1, 2)}
_LOOPS: Positions = {_higher_order.map_impl: (0,), _higher_order.scan: (0,)}
_SCAN: Positions = {_higher_order.scan: (0,)}
_WHILE: Positions = {_higher_order.while_loop: (0, 1)}


def get_control_flow_submodules(graph_module: GraphModule) -> list[Body]:
    """Of `cond`, `map` and `scan`."""
    return _get_control_flow_submodules(graph_module, _COND | _LOOPS)


def get_cond_while_submodules(graph_module: GraphModule) -> list[Body]:
    """Of `cond` and `while_loop`."""
    return _get_control_flow_submodules(graph_module, _COND | _WHILE)


def get_scan_submodules(graph_module: GraphModule) -> list[Body]:
    """Of `scan`."""
    return _get_control_flow_submodules(graph_module, _SCAN)


def bfs_trace_with_node_process(gm: GraphModule, node_op: Callable[[Node], None]) -> None:
    """Call `node_op` with every node of a graph, then with those of its bodies, level by level."""
    queue = [gm]
    while queue:
        for node in (module := queue.pop(0)).graph.nodes:
            node_op(node)
        queue.extend(body for _, body, _ in _get_control_flow_submodules(module, _COND | _LOOPS | _WHILE))


def _get_control_flow_submodules(
    graph_module: GraphModule, op_to_submodule_arg_index: Mapping[Any, Sequence[int]]
) -> list[Body]:
    """The bodies at these positions of the arguments of calls of these operators."""
    return [
        _get_submodule(graph_module, node, position)
        for node in graph_module.graph.nodes
        if node.op == "call_function"
        for position in op_to_submodule_arg_index.get(node.target, ())
    ]


def _get_submodule(graph_module: GraphModule, node: Node, arg_index: int) -> Body:
    name = str(node.args[arg_index].target)  # type: ignore[union-attr]
    body: Any = graph_module.get_submodule(name)  # a body of control flow, or a lowered module
    return name, body, node
