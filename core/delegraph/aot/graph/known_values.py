"""A node -> its content, if it is computed from constants alone.

Models make masks of ranges and comparisons, where nothing is hidden as well:

    arange(197) ── unsqueeze ── ge 0 ── expand ──> attn_mask      ──>  197 x 197 times True
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from delegraph.aot.graph.bodies import referenced

__all__ = ["LARGEST", "held_value", "known_value"]

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


def known_value(
    node: Node, constant: Callable[[Node], torch.Tensor | None], largest: float = LARGEST
) -> torch.Tensor | None:
    """The content of `node`, the same in each run; None if it depends on inputs or random numbers, or if it, or what it
    is computed from, has more than `largest` elements.

    `constant` gives the content of a placeholder or an attribute of the graph, None if it is no constant.
    """
    value = _Values(constant, largest).of(node)
    return value if isinstance(value, torch.Tensor) else None


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


@dataclass(frozen=True, slots=True)
class _Values:
    """The content of nodes so far: tensors, or lists of them; None where it is unknown."""

    constant: Callable[[Node], torch.Tensor | None]
    largest: float
    done: dict[Node, Any] = field(default_factory=dict)

    def of(self, node: Node) -> Any:
        if node not in self.done:
            value = self._result if node.op == "call_function" else self.constant
            self.done[node] = value(node) if self._is_small(node) else None
        return self.done[node]

    def _result(self, node: Node) -> Any:
        target: Any = node.target
        known = target is operator.getitem or isinstance(target, torch._ops.OpOverload)
        if not known or _writes(node) or torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()):
            return None
        value_of = self._unknown if target in _SHAPED_ALIKE else self.of
        taken = {source: value_of(source) for source in node.all_input_nodes}
        if any(value is None for value in taken.values()):
            return None
        return target(*map_arg(node.args, taken.get), **map_arg(node.kwargs, taken.get))

    def _unknown(self, node: Node) -> torch.Tensor | None:
        """An uninitialized tensor of the shape and dtype of `node`; None if it is large."""
        fake = node.meta["val"]
        return torch.empty(fake.shape, dtype=fake.dtype) if self._is_small(node) else None

    def _is_small(self, node: Node) -> bool:
        value = node.meta.get("val")
        return all(
            isinstance(part, torch.Tensor)
            and all(isinstance(size, int) for size in part.shape)
            and prod(part.shape) <= self.largest
            for part in (value if isinstance(value, list | tuple) else [value])
        )
