"""ExecuTorch's `executorch.devtools.debug_format.base_schema`: a model as nodes and groups of them, for viewers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Node", "OperatorGraph", "OperatorNode", "ValueNode"]


@dataclass
class Node:
    """A node: what it reads, the shapes of its results, what is known about it, the names of its arguments."""

    name: str
    inputs: list[Any] | None = None
    output_shapes: list[list[int]] | None = None
    metadata: dict[str, Any] | None = None
    named_args: list[str] | None = None


@dataclass
class OperatorGraph:
    """Nodes and groups of nodes under one name."""

    graph_name: str
    elements: list[Node | OperatorGraph]
    metadata: dict[str, Any] | None = None


@dataclass
class ValueNode(Node):
    """An input, an output or a constant; `val` is the constant as text."""

    dtype: str = ""
    val: Any = None


@dataclass
class OperatorNode(Node):
    """A call of the operator named `op`."""

    op: str | None = None
