"""A mask's node -> its content, if it is computed from constants alone.

Models make such masks of ranges and comparisons, where nothing is hidden as well:

    arange(197) ── unsqueeze ── ge 0 ── expand ──> attn_mask      ──>  197 x 197 times True
"""

from __future__ import annotations

from math import prod
from typing import Final

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from delegraph_cpu.aot.graph_builder import GraphBuilder

__all__ = ["known_mask", "without_repetitions"]

LARGEST: Final = 2**22
"""Elements of a mask of 2048 x 2048: what it takes longer to compute is not known."""


def known_mask(g: GraphBuilder, mask: Node) -> torch.Tensor | None:
    """What `mask` holds in each run; None if that depends on inputs or chance, or is large."""
    return _computed(g, mask, {})


def without_repetitions(mask: torch.Tensor, periodic: bool) -> torch.Tensor:
    """A mask `[…, rows, columns]` with size 1 along each earlier dim in which nothing changes; of the first dim, where
    `periodic` allows, what is repeated along it:

        [8 * 64, 3, 49, 49]    Swin's 64 windows of 8 images    ──>    [64, 3, 49, 49]
    """
    for dim in range(mask.ndim - 2):
        first = mask.narrow(dim, 0, 1)
        if torch.equal(mask, first.expand_as(mask)):
            mask = first
    count = mask.shape[0] if periodic and mask.ndim > 2 else 1
    periods = (size for size in range(2, count) if count % size == 0)
    return next((mask[:size] for size in periods if _repeats(mask, size)), mask)


def _repeats(mask: torch.Tensor, size: int) -> bool:
    parts = mask.unflatten(0, (-1, size))
    return torch.equal(parts, parts[:1].expand_as(parts))


def _computed(g: GraphBuilder, node: Node, done: dict[Node, torch.Tensor | None]) -> torch.Tensor | None:
    if node not in done:
        done[node] = _content(g, node) if node.op == "placeholder" else _result(g, node, done)
    return done[node]


def _content(g: GraphBuilder, node: Node) -> torch.Tensor | None:
    array = g.parameter(node)
    return None if array is None or array.size > LARGEST else torch.from_numpy(array.copy())


def _result(g: GraphBuilder, node: Node, done: dict[Node, torch.Tensor | None]) -> torch.Tensor | None:
    if not isinstance(node.target, torch._ops.OpOverload) or not _is_small(node):
        return None
    if node.target in _FILLS:
        return torch.full(tuple(node.meta["val"].shape), node.args[1], dtype=node.meta["val"].dtype)  # type: ignore[arg-type]
    if node.target._schema.is_mutable or torch.Tag.nondeterministic_seeded in node.target.tags:
        return None
    taken = {source: _computed(g, source, done) for source in node.all_input_nodes}
    if any(value is None for value in taken.values()):
        return None
    result = node.target(*map_arg(node.args, taken.get), **map_arg(node.kwargs, taken.get))
    return result if isinstance(result, torch.Tensor) else None


_FILLS: Final = frozenset([torch.ops.aten.full_like.default])
"""What takes the shape of something alone, which may be an input."""


def _is_small(node: Node) -> bool:
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not all(isinstance(size, int) for size in value.shape):
        return False
    return prod(value.shape) <= LARGEST
