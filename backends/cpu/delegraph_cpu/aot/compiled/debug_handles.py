"""Converted model, its optimised graph -> that graph with names for its nodes, and name -> debug handles.

    converted: conv ─x─> bn ─y─> relu ─z─>      x, y and z have the handles 1, 2 and 3
    optimised: FusedConv ─z─>                   its name is z, and z has the handles 1, 2 and 3

An optimiser keeps the names of remaining values. So an optimised operator stands for the operators between its
results and the next values that both graphs have. At run time onnxruntime names the nodes that it makes of a node after
that node, or after its result.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

__all__ = ["name_nodes"]


def name_nodes(
    optimized: ir.Model, converted: ir.Model, debug_handles: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Name the nodes of `optimized` after their first results; returns the debug handles of each name.

    `debug_handles` are those of the values of `converted`.
    """
    producers = {str(value.name): node for node in converted.graph.all_nodes() for value in node.outputs}
    nodes = list(optimized.graph.all_nodes())
    kept = {str(value.name) for node in nodes for value in node.outputs}
    named: dict[str, tuple[int, ...]] = {}
    for node in nodes:
        results = [str(value.name) for value in node.outputs]
        node.name = results[0]
        between = _between(results, kept, producers)
        handles = {handle for name in between for handle in debug_handles.get(name, ())}
        if handles:
            named[results[0]] = tuple(sorted(handles))
    return named


def _between(results: list[str], kept: set[str], producers: Mapping[str, ir.Node]) -> set[str]:
    """The values that `results` are computed from, themselves included, up to those that are `kept`."""
    seen, left = set(results), list(results)
    while left:
        producer = producers.get(left.pop())
        if producer is not None:
            new = {str(value.name) for value in producer.inputs if value is not None} - kept - seen
            seen |= new
            left += new
    return seen
