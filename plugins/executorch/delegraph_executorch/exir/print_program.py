"""Programs and graphs -> text for people (ExecuTorch `exir/print_program.py`)."""

from __future__ import annotations

import re
from pprint import pprint
from typing import Any, TextIO

from torch.fx import Graph, Node

from delegraph.program import deserialize_program, to_text
from delegraph_executorch.exir._serialize._program import PTEFile, serialize_pte_binary
from delegraph_executorch.exir.schema import Frame, FrameList, Program

__all__ = ["add_cursor_to_graph", "inspect_node", "pretty_print", "pretty_print_stacktraces", "print_program"]


def print_program(
    program: Program,
    show_meminfo: bool = True,
    mark_dynamic_shape_tensor: bool = False,
    out: TextIO | None = None,
) -> None:
    """The program as `delegraph.program.to_text` has it, to `out` (None: standard output).

    Places in memory and upper bounds of sizes are in it in any case. Raises `InvalidProgram` for what is none.
    """
    print(to_text(deserialize_program(bytes(serialize_pte_binary(PTEFile(program))))), file=out)


def pretty_print(obj: Any, indent: int = 0, out: TextIO | None = None) -> None:
    """Every field of every record in `obj`, to `out` (None: standard output)."""
    pprint(obj, out, indent + 1, width=120)


def pretty_print_stacktraces(obj: FrameList) -> str:
    """A stack trace as Python prints it."""
    lines = ["Traceback (most recent call last):"]
    for frame in obj.items:
        lines.append(f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}')
        lines.append(f"    {frame.context}")
    return "\n".join(lines) + "\n"


# ---- graphs ----------------------------------------------------------------------------------------

_FRAME = re.compile(r'File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<name>[^\n]*)\n?\s*(?P<context>[^\n]*)')


def add_cursor_to_graph(graph: Graph, finding_node: Node) -> str:
    """The graph as text under a line `graph():`, with an arrow at one of its nodes."""
    lines = [f"{'-->' if node is finding_node else '   '} {node.format_node() or 'return'}" for node in graph.nodes]
    return "\n".join(["graph():", *lines]) + "\n"


def inspect_node(graph: Graph, node: Node) -> str:
    """Where in its graph a node is, and in which lines of the model it comes from."""
    trace = _stacktrace_to_framelist(node.meta.get("stack_trace", ""))
    where = pretty_print_stacktraces(trace) if trace.items else "it comes from no line of the model\n"
    return add_cursor_to_graph(graph, node) + "\n" + where


def _stacktrace_to_framelist(stacktrace: str) -> FrameList:
    found = _FRAME.finditer(stacktrace or "")
    return FrameList(
        [Frame(one["file"], int(one["line"]), one["name"].strip(), one["context"].strip()) for one in found]
    )
