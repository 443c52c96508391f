"""Graph nodes -> debug handles: numbers by which what ran on a device is known as what the user wrote.

All that was made of one call of the exported program has its handle, in control-flow bodies too:

    exported                     edge program
    y = linear(x, w)    1        t = permute_copy(w, [1, 0])    1
                                 y = addmm(b, x, t)             1
    z = y * 2           2        z = mul.Tensor(y, c)           2

Inputs, constants (`c`) and outputs have none; 0 is no handle. They are counted in the edge program, so that calls that
lowering to it removed leave no gaps. ExecuTorch numbers in the same way (`exir/passes/debug_handle_generator_pass.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Final

from torch.fx import GraphModule, Node

from delegraph.aot.graph.bodies import all_nodes

__all__ = ["DEBUG_HANDLE", "close_gaps", "fill_debug_handles", "highest_handle", "source_handles"]

DEBUG_HANDLE: Final = "debug_handle"


def source_handles(module: GraphModule) -> dict[Node, int]:
    """The handle of each node of an exported program that has one, or is to have one: they continue those there are.

    Nodes that torch decomposed a call into before count as that call (`meta["from_node"]`).
    """
    handles: dict[Node, int] = {}
    by_origin: dict[object, int] = {}
    highest = highest_handle(module)
    for node in _handled(module):
        handle = node.meta.get(DEBUG_HANDLE) or by_origin.get(_origin(node))
        if handle is None:
            handle = highest = highest + 1
        handles[node] = by_origin[_origin(node)] = handle
    return handles


def close_gaps(module: GraphModule) -> None:
    """Count the handles from 1 on, in the order of the graph and then of its bodies; calls without one get one."""
    numbers: dict[object, int] = {}
    for node in _handled(module):
        node.meta[DEBUG_HANDLE] = numbers.setdefault(node.meta.get(DEBUG_HANDLE) or node, len(numbers) + 1)


def fill_debug_handles(module: GraphModule) -> None:
    """Give each node that a pass added without a handle one of its own."""
    highest = highest_handle(module)
    for node in _handled(module):
        if not node.meta.get(DEBUG_HANDLE):
            node.meta[DEBUG_HANDLE] = highest = highest + 1


def _handled(module: GraphModule) -> list[Node]:
    return [node for node in all_nodes(module) if node.op not in ("placeholder", "output")]


def highest_handle(module: GraphModule) -> int:
    """The highest debug handle in `module`, 0 if there is none."""
    known = [0]
    for node in all_nodes(module):
        handle: int | Sequence[int] | None = node.meta.get(DEBUG_HANDLE)
        known += handle if isinstance(handle, Sequence) else [handle or 0]
    return max(known)


def _origin(node: Node) -> object:
    """The node that `node` was in the first graph that torch knows of; a result counts as its call, a body as the call
    that runs it."""
    if node.op == "get_attr" and node.users:
        node = next(iter(node.users))
    while node.target is operator.getitem and isinstance(node.args[0], Node):
        node = node.args[0]
    sources = node.meta.get("from_node")
    if not sources:
        return node
    source = sources[-1]
    while source.from_node:
        source = source.from_node[-1]
    return source.name, source.graph_id
