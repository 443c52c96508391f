"""Graph node -> the name of the operator that it calls, as messages and reports have it."""

from __future__ import annotations

from torch.fx import Node

from delegraph.aot.graph.mutating_calls import called_operator

__all__ = ["operator_name"]


def operator_name(node: Node) -> str:
    """`aten::add.Tensor`, or a Python function's own name."""
    target = called_operator(node) or node.target
    schema = getattr(target, "_schema", None)
    if schema is None:
        name = getattr(target, "name", None)
        return str(name() if callable(name) else getattr(target, "__name__", target))
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)
