"""The order of a graph's nodes, for a session that widens narrow weights in each run.

    w.half ── Cast ── w ── MatMul        Cast w, Cast v, MatMul w, MatMul v  ->  Cast w, MatMul w, Cast v, MatMul v

onnxruntime frees a value after its last reader: a wide weight exists for one operator at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from delegraph.interfaces import Buffer
from delegraph_cpu.graphs.checks import checked_graph, operator_of_any
from delegraph_cpu.graphs.messages import Message
from delegraph_cpu.graphs.wire import encoded

__all__ = ["with_late_constants"]


def with_late_constants(graph: Buffer) -> bytes:
    """The bytes of a graph whose nodes that read constants alone come just before their first reader."""
    model = checked_graph(graph, operator_of_any)
    main = model["graph"]
    return b"".join(encoded(model | {"graph": main | {"node": list(_ordered(main))}}))


def _ordered(graph: Message) -> Iterator[Message]:
    """The nodes of a graph in that order. A node without readers is left out."""
    constants = {tensor["name"] for tensor in graph.get("initializer", ())} | {""}
    waiting: dict[str, Message] = {}
    for node in graph.get("node", ()):
        reads = _reads(node)
        if reads <= constants:
            outputs = set(node["output"]) - {""}
            constants |= outputs
            waiting |= dict.fromkeys(outputs, node)
        else:
            yield from _made(reads, waiting)
            yield node
    yield from _made(_results(graph), waiting)


def _made(names: set[str], waiting: dict[str, Message]) -> Iterator[Message]:
    """The nodes that make these constants, and those that they read, if they still wait."""
    for name in sorted(names):
        node = waiting.pop(name, None)
        if node is not None:
            for output in node["output"]:
                waiting.pop(output, None)
            yield from _made(_reads(node), waiting)
            yield node


def _reads(node: Message) -> set[str]:
    """The names that a node reads, in the bodies of its branches and loops, too."""
    names = set(node.get("input", ()))
    for body in (attribute["g"] for attribute in node.get("attribute", ()) if "g" in attribute):
        names |= _results(body).union(*map(_reads, body.get("node", ())))
    return names


def _results(graph: Message) -> set[str]:
    return {value["name"] for value in graph.get("output", ())}
