"""A node -> its content, if it is computed from constants alone.

Models make masks of ranges and comparisons, where nothing is hidden as well:

    arange(197) ── unsqueeze ── ge 0 ── expand ──> attn_mask      ──>  197 x 197 times True
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from delegraph.aot.graph.bodies import referenced

__all__ = ["held_value", "known_value"]

LARGEST: Final = 2**22
"""Elements of a mask of 2048 x 2048: larger results count as unknown, since computing them takes long."""

aten = torch.ops.aten

_SHAPED_ALIKE: Final = frozenset(
    {
        *(aten.full_like.default, aten.ones_like.default, aten.zeros_like.default),
        *(aten.new_full.default, aten.new_ones.default, aten.new_zeros.default),
    }
)
"""Operators that read the shape or the dtype of their first argument, and no values: it may be an input."""


def known_value(node: Node, constant: Callable[[Node], torch.Tensor | None]) -> torch.Tensor | None:
    """The content of `node`, the same in each run; None if it depends on inputs or random numbers, or is large.

    `constant` gives the content of a placeholder or an attribute of the graph, None if it is no constant.
    """
    return _computed(node, constant, {})


def held_value(module: GraphModule, node: Node) -> torch.Tensor | None:
    """As `known_value`, of a node of `module`, which holds its parameters and buffers itself."""
    return known_value(node, lambda leaf: _held(module, leaf))


def _held(module: GraphModule, leaf: Node) -> torch.Tensor | None:
    """A parameter, or a buffer that nothing writes; None of inputs."""
    if leaf.op != "get_attr" or any(map(_writes, leaf.users)):
        return None
    value = referenced(module, leaf)
    return value.detach() if isinstance(value, torch.Tensor) else None


def _writes(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def _computed(
    node: Node, constant: Callable[[Node], torch.Tensor | None], done: dict[Node, torch.Tensor | None]
) -> torch.Tensor | None:
    if node not in done:
        calls = node.op == "call_function"
        done[node] = None if not _is_small(node) else _result(node, constant, done) if calls else constant(node)
    return done[node]


def _result(
    node: Node, constant: Callable[[Node], torch.Tensor | None], done: dict[Node, torch.Tensor | None]
) -> torch.Tensor | None:
    if not isinstance(node.target, torch._ops.OpOverload):
        return None
    if _writes(node) or torch.Tag.nondeterministic_seeded in node.target.tags:
        return None
    if node.target in _SHAPED_ALIKE:
        taken = {source: _unknown(source) for source in node.all_input_nodes}
    else:
        taken = {source: _computed(source, constant, done) for source in node.all_input_nodes}
    if any(value is None for value in taken.values()):
        return None
    result = node.target(*map_arg(node.args, taken.get), **map_arg(node.kwargs, taken.get))
    return result if isinstance(result, torch.Tensor) else None


def _unknown(node: Node) -> torch.Tensor | None:
    """An uninitialized tensor of the shape and dtype of `node`; None if it is large."""
    return torch.empty(node.meta["val"].shape, dtype=node.meta["val"].dtype) if _is_small(node) else None


def _is_small(node: Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape):
        return False
    return prod(value.shape) <= LARGEST
