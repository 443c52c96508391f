"""A graph value -> its fake value: what it was when the graph was traced, a tensor without data or a symbolic number.

Tracing leaves it in a node's `meta["val"]`, whose type torch does not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.fx import Node
from torch.fx.node import Argument
from torch.utils import _pytree as pytree

__all__ = ["Args", "Kwargs", "fake_tensor", "fake_value", "fake_values", "several"]

Args: TypeAlias = Sequence[Argument]
"""Arguments of a call by position: nodes, plain values, and lists of them."""

Kwargs: TypeAlias = Mapping[str, Argument]
"""Arguments of a call by name."""


def fake_value(node: Node) -> object:
    """The fake value of `node`: a tensor, a number, a tuple of them; None where there is none."""
    return node.meta.get("val")


def fake_tensor(value: Argument) -> torch.Tensor:
    """The fake tensor that the node `value` gives."""
    assert isinstance(value, Node)
    tensor = value.meta["val"]
    assert isinstance(tensor, torch.Tensor), f"{value} gives no tensor"
    return tensor


def several(argument: Argument) -> Args:
    """`argument`, which is a list."""
    assert isinstance(argument, (list, tuple))
    return argument


def fake_values(arguments: object) -> Any:
    """`arguments`, a structure, with the fake value of each node in its place."""
    return pytree.tree_map_only(Node, lambda node: node.meta["val"], arguments)
