"""A value of a converted model -> the node that gives it, those that read it, and what a constant holds."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["content_of", "producer_of", "readers_of"]


def producer_of(value: ir.Value | None) -> ir.Node:
    """The node that gives `value`, which is neither an input nor an initialiser."""
    node = None if value is None else value.producer()
    assert node is not None
    return node


def readers_of(value: ir.Value) -> list[ir.Node]:
    """The nodes of the model that read `value`, each as often as it does: others were left out of it."""
    return [use.node for use in value.uses() if use.node.graph is not None]


def content_of(constant: ir.Value) -> NDArray[Any]:
    """What an initialiser holds."""
    assert constant.const_value is not None
    return constant.const_value.numpy()
