"""A node -> whether its value is a number: what no delegate can fill, and kernels hand around as it is."""

from __future__ import annotations

import torch
from torch.fx import Node

__all__ = ["is_scalar"]


def is_scalar(node: Node) -> bool:
    """Whether `node`'s value is a size or another number, symbolic or not, and not a tensor."""
    return isinstance(node.meta.get("val"), (int, float, torch.SymInt, torch.SymFloat, torch.SymBool))
