"""MethodGraph -> the updates of states that need no copy: they may write into the state's own memory.

A functional graph gives a changed buffer as a new value, which is written back at the end. Where nothing reads the old
value after the update, the update can work in place: a cache of keys and values is then never copied. (ExecuTorch's
`exir/passes/reinplace.py` does it for `index_put`, by an in-place operator whose kernel takes one index only.)
"""

from __future__ import annotations

import operator
from typing import Final

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from delegraph.aot.graph.mutating_calls import auto_functionalized, called_operator, changed_arguments, first_copy
from delegraph.aot.graph.signature import MethodGraph

__all__ = ["in_place_updates"]

aten = torch.ops.aten

_UPDATES: Final = frozenset({aten.index_put.default, aten.slice_scatter.default, aten.scatter.src})
"""Operators that give their first argument with some elements replaced. Their kernels, ExecuTorch's too, copy it into
`out` and then write, so `out` may be that argument itself."""


def in_place_updates(method: MethodGraph) -> frozenset[Node]:
    """The values (results, elements of what `auto_functionalized` gives) that may be their argument, changed."""
    position = {node: i for i, node in enumerate(method.program.graph.nodes)}
    found: set[Node] = set()
    for write_back in method.write_backs:
        chain = []
        node = write_back.source
        while (updated := _updated(node)) is not None and _last_reader(updated, node, position):
            chain.append(node)
            node = updated
        if node is write_back.target:
            found.update(chain)
    return frozenset(found)


def _updated(node: Node) -> Node | None:
    """The value of which `node` is a changed one."""
    if node.target in _UPDATES:
        source = node.args[0]
    else:
        call = _call(node)
        op = None if call is node else called_operator(call)
        if call.target is not auto_functionalized or op is None:
            return None
        copy = int(node.args[1]) - first_copy(op)  # type: ignore[arg-type]
        source = call.kwargs[changed_arguments(op)[copy]] if copy >= 0 else None
    return source if isinstance(source, Node) else None


def _last_reader(value: Node, update: Node, position: dict[Node, int]) -> bool:
    """Whether the call behind `update` reads `value` once, and all else that reads it comes before."""
    call = _call(update)
    reads: list[Node] = []
    map_arg((call.args, call.kwargs), reads.append)
    return reads.count(value) == 1 and all(position[user] < position[call] for user in value.users if user is not call)


def _call(node: Node) -> Node:
    """The call that `node` is an element of, or `node`."""
    source = node.args[0] if node.target is operator.getitem else node
    assert isinstance(source, Node)
    return source
