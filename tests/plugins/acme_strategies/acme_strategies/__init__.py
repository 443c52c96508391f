"""Three ways to say what goes to the CPU backend: operators, patterns of them, and a function."""

from __future__ import annotations

import torch
from torch.fx import Node

from delegraph_partitioners import (
    ANY,
    CapabilityBasedPartitioner,
    OperatorsPartitioner,
    Pattern,
    PatternPartitioner,
    op,
)

__all__ = ["by_capability", "by_operator", "by_pattern"]

BACKEND = "CpuBackend"
aten = torch.ops.aten
LAYERS = (aten.linear.default, aten.conv2d.default)
ELEMENTWISE = (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.relu.default)


def by_operator(*, minimum_nodes: int = 1) -> OperatorsPartitioner:
    """Calls of a list of operators."""
    return OperatorsPartitioner(BACKEND, [*LAYERS, *ELEMENTWISE], minimum_nodes=minimum_nodes, keep_whole=LAYERS)


def by_pattern() -> PatternPartitioner:
    """A layer with the activation behind it, each match whole; a layer and an elementwise operator by themselves."""
    layers = [op(aten.linear.default, ANY, ANY, ANY), op(aten.conv2d.default, ANY, ANY, ANY)]
    patterns = [*(op(aten.relu.default, layer) for layer in layers), *layers, *map(op, ELEMENTWISE)]
    return PatternPartitioner(BACKEND, [Pattern((pattern,)) for pattern in patterns], keep_whole=LAYERS)


def by_capability(*, minimum_nodes: int = 1) -> CapabilityBasedPartitioner:
    """What a function finds nothing wrong with."""
    return CapabilityBasedPartitioner(BACKEND, _reason, minimum_nodes=minimum_nodes, keep_whole=LAYERS)


def _reason(node: Node) -> str | None:
    if node.target not in (*LAYERS, *ELEMENTWISE):
        return f"ACME does not delegate {node.target}"
    return None if node.meta["val"].dtype == torch.float32 else "ACME delegates float32 alone"
