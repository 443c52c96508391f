"""An exported program whose model calls delegates -> the same, with each of these calls flat, as partitions are cut.

A lowered module that stands in a model is called as its own program was: with lists and dicts, and for what that one
returns. In edge programs a delegate call has its inputs in a row and gives a tuple of tensors:

    before                                          after
    d = call_delegate(lowered, {"a": x, "b": y})    d = call_delegate(lowered', x, y)
    z = sin(d)                                      e = d[0]
                                                    z = sin(e)
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from delegraph.aot.delegation.lowered_module import (
    LoweredBackendModule,
    flat_inputs,
    get_lowered_module,
    is_delegate_call,
    lowered_modules,
)
from delegraph.aot.graph.bodies import attributes, graph_modules
from delegraph.aot.graph.edit import copy_program, with_graph

__all__ = ["with_flat_calls"]


def with_flat_calls(program: ExportedProgram) -> ExportedProgram:
    """`program`, itself if its delegate calls are flat already, else a copy; weights and blobs are shared."""
    if all(lowered.is_flat for lowered in lowered_modules(program.graph_module)):
        return program
    copied = copy_program(program)
    for _, module in graph_modules(copied.graph_module):
        _flatten_calls(module)
    return with_graph(copied, attributes(copied.graph_module), copied.graph)


def _flatten_calls(module: GraphModule) -> None:
    calls = [(node, get_lowered_module(module, node)) for node in module.graph.nodes if is_delegate_call(node)]
    flat: dict[LoweredBackendModule, LoweredBackendModule] = {}
    for call, lowered in calls:
        if not lowered.is_flat:
            flat.setdefault(lowered, lowered.flat())
            _flatten(call, lowered)
    for name, value in attributes(module).items():
        if isinstance(value, LoweredBackendModule) and value in flat:
            parent, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(parent), attribute, flat[value])


def _flatten(call: Node, lowered: LoweredBackendModule) -> None:
    reference, *arguments = call.args
    program, values = lowered.original_module, pytree.tree_leaves(call.meta["val"])
    # positions in the flat tuple, in the structure of the old result: d["a"][1] -> positions["a"][1]
    readers = list(_readers(call, pytree.tree_unflatten(list(range(len(values))), program.call_spec.out_spec)))
    call.args = (reference, *flat_inputs(program, arguments))
    call.meta["val"] = tuple(values)
    for node, position in readers:
        if position is not None:
            with call.graph.inserting_after(call):
                element = call.graph.call_function(operator.getitem, (call, position))
            element.meta = {**call.meta, "val": values[position]}
            for user in [user for user in node.users if user is not element]:
                user.replace_input_with(node, element)
    for node, _ in reversed(readers):  # elements of elements first
        if node is not call:
            call.graph.erase_node(node)


def _readers(node: Node, positions: Any) -> Iterator[tuple[Node, int | None]]:
    """`node`, a call or an element of what it gives, and the elements read of it, each with which result it is, or None
    for several."""
    if isinstance(positions, int):
        yield node, positions
        return
    yield node, None
    for user in node.users:
        yield from _readers(user, positions[user.args[1]])
