"""A call of an operator -> its arguments as the operator's schema has them."""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload
from torch.fx import Node

from delegraph.aot.graph.fake_values import Args, Kwargs
from delegraph.aot.graph.mutating_calls import called_operator

__all__ = ["bind_schema", "named_arguments", "schema_arguments"]


def bind_schema(op: OpOverload, args: Args, kwargs: Kwargs) -> list[Any]:
    """All arguments of a call of `op` in schema order, defaults filled in."""
    return [
        args[i] if i < len(args) else kwargs.get(argument.name, argument.default_value)
        for i, argument in enumerate(op._schema.arguments)
    ]


def schema_arguments(node: Node) -> list[Any]:
    """The arguments of `node` in the order of its operator's schema, defaults filled in, also where that is called
    through `auto_functionalized`; those of anything else as they stand."""
    called = called_operator(node)
    if called is None:
        return list(node.args)
    return bind_schema(called, node.args if node.target is called else (), node.kwargs)


def named_arguments(node: Node) -> dict[str, Any]:
    """The arguments of a call by the names that its operator's schema has for them, defaults filled in; none of what is
    not an operator."""
    if not isinstance(node.target, OpOverload):
        return {}
    names = (argument.name for argument in node.target._schema.arguments)
    return dict(zip(names, bind_schema(node.target, node.args, node.kwargs), strict=True))
