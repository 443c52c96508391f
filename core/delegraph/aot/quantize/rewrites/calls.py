"""A call -> calls before it, which stand in the same modules and say what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch._ops import OpOverload
from torch.fx import Node
from torch.fx.node import Argument

from delegraph.aot.torch_internals import enable_python_dispatcher

__all__ = ["Caller", "calls_before"]

Caller: TypeAlias = Callable[..., Node]
"""(operator, arguments) -> a new call of it."""


def calls_before(node: Node) -> Caller:
    """A function that adds a call before `node`, with its `val`."""

    def call(target: OpOverload, *args: Argument) -> Node:
        with node.graph.inserting_before(node):
            new = node.graph.call_function(target, args)
        values = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in args]
        with enable_python_dispatcher():  # a composite in C++ may fix symbolic sizes to their example
            new.meta = {**node.meta, "val": target(*values)}
        return new

    return call
