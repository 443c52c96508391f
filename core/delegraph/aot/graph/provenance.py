"""Edge program -> the same, each call with a lasting name: by it a call is known in all forms of the program.

A backend sees the program in the form that it asked for. Calls of one form are known in another by

    linear            a call of the source program, and the same call wherever it was left whole
    linear/0, /1      the calls that it was decomposed into, in order; `linear/1/0` is a piece of a piece
"""

from __future__ import annotations

from typing import Final

from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.graph.bodies import all_nodes, graph_modules

__all__ = ["MEMORY_FORMAT", "OPERAND", "SOURCE", "mark_piece", "name_sources", "source_call", "source_of"]

SOURCE: Final = "delegraph_source"
"""The key in `node.meta` of the lasting name."""

OPERAND: Final = "delegraph_operand"
"""The key in `node.meta` of nodes that `edge.tensor_operands` put in the place of an operand: the number, or None."""

MEMORY_FORMAT: Final = "delegraph_memory_format"
"""The key in `node.meta` of calls whose copies say layouts by memory formats on purpose (`edge.memory_formats`)."""


def name_sources(program: ExportedProgram) -> None:
    """Name every call of `program` that has no lasting name after its node, with the path of its control-flow body
    before."""
    taken = {source_of(node) for node in all_nodes(program.graph_module) if SOURCE in node.meta}
    for path, module in graph_modules(program.graph_module):
        for node in module.graph.nodes:
            if node.op == "call_function" and SOURCE not in node.meta:
                name = f"{path}.{node.name}" if path else node.name
                while name in taken:
                    name += "'"
                taken.add(name)
                node.meta[SOURCE] = name


def mark_piece(node: Node, number: int) -> None:
    """Name `node`, which has the name of the call that it is a piece of, as that call's piece `number`."""
    if SOURCE in node.meta:
        node.meta[SOURCE] = f"{node.meta[SOURCE]}/{number}"


def source_of(node: Node) -> str:
    """The lasting name of `node`, or its own if it was never named."""
    return str(node.meta.get(SOURCE, node.name))


def source_call(source: str) -> str:
    """The call of the source program that `source` is, or is a piece of."""
    return source.partition("/")[0]
