"""Operators that pick elements by their places -> OpenVINO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from openvino import Output
from torch.fx import Node

from delegraph_openvino.aot.graph_builder import GraphBuilder, dtype_of, shape_of
from delegraph_openvino.aot.table import ALL, converts


@converts("embedding.default", dtypes=ALL, indexes=(1,), keep=True)
def embedding(g: GraphBuilder, node: Node, weight: Node, indices: Node, *_: Any) -> Output:
    return g.op("gather", weight, indices, g.axis(0))


@converts("index_select.default", dtypes=ALL, indexes=(2,))
def index_select(g: GraphBuilder, node: Node, x: Node, dim: int, index: Node) -> Output:
    if not shape_of(x):
        return g.value(x)
    return _picked(g, x, dim, index)


def _picked(g: GraphBuilder, x: Node, dim: int, index: Node) -> Output:
    """The elements of `x` at the places `index` of `dim`, which is counted from behind: a permutation of channels that
    is counted from the front OpenVINO takes into the weights of the convolution that reads it, and inverts it there."""
    rank = len(shape_of(x))
    return g.op("gather", x, index, g.axis(dim % rank - rank))


def _cuttable(node: Node, x: Node, dim: int, index: Node, *_: Any) -> str | None:
    if not shape_of(x):
        return "its operand is a scalar"
    fixed = all(isinstance(size, int) for _, size in _cuts(x, dim, index))
    return None if fixed else "its index is smaller than its operand, by how much is not fixed"


@converts("gather.default", dtypes=ALL, indexes=(2,), check=_cuttable)
def gather(g: GraphBuilder, node: Node, x: Node, dim: int, index: Node, *_: Any) -> Output:
    """OpenVINO's takes no more elements than there are indices, but along `dim`, so the operand is cut."""
    value = g.value(x)
    for cut, size in _cuts(x, dim, index):  # not by a slice, which OpenVINO takes for unnecessary
        value = g.op("gather", value, g.vector(range(size)), g.axis(cut))
    return g.op("gather_elements", value, index, axis=dim % len(shape_of(x)))


def _cuts(x: Node, dim: int, index: Node) -> list[tuple[int, Any]]:
    """The dims, `dim` aside, along which `index` has another size, and this size."""
    pairs = zip(shape_of(index), shape_of(x), strict=True)
    return [(i, n) for i, (n, m) in enumerate(pairs) if i != dim % len(shape_of(x)) and n != m]


def _adjacent(node: Node, x: Node, indices: Sequence[Node | None]) -> str | None:
    places = [i for i, index in enumerate(indices) if index is not None]
    if places != list(range(places[0], places[-1] + 1)):
        return "its indices are not next to each other"
    if any(index is not None and dtype_of(index) == torch.bool for index in indices):
        return "it picks by a mask"
    return None


@converts("index.Tensor", dtypes=ALL, indexes=(1,), check=_adjacent)
def index(g: GraphBuilder, node: Node, x: Node, indices: Sequence[Node | None]) -> Output:
    """One index is a gather; several, which broadcast, pick from all of their dims at once.

    x[:, i, j] with x (a, b, c, d)    gather_nd(x as (b, c, a, d), [i, j])    then the dims back
    """
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if len(given) == 1:
        dim, picked = given[0]
        return _picked(g, x, dim, picked)
    rank, first, count = len(shape_of(x)), given[0][0], len(given)
    sizes = g.shape(x)
    shape = _broadcast_shape(g, [picked for _, picked in given])
    parts = []
    for dim, picked in given:
        size = g.op("gather", sizes, g.axis(dim), g.axis(0))
        wide = g.op("broadcast", g.cast(picked, torch.int64), shape)
        parts.append(g.op("unsqueeze", g.op("floor_mod", wide, size), g.vector([-1])))
    front = [dim for dim, _ in given] + [dim for dim in range(rank) if dim not in dict(given)]
    moved = g.op("transpose", x, g.vector(front)) if first else g.value(x)
    result = g.op("gather_nd", moved, g.concat(parts, -1), batch_dims=0)
    if not first:
        return result
    picked_rank = len(node.meta["val"].shape) - (rank - count)
    order = [
        *range(picked_rank, picked_rank + first),
        *range(picked_rank),
        *range(picked_rank + first, picked_rank + rank - count),
    ]
    return g.op("transpose", result, g.vector(order))


def _broadcast_shape(g: GraphBuilder, picked: Sequence[Node]) -> Output:
    total = g.cast(picked[0], torch.int64)
    for other in picked[1:]:
        total = g.op("add", total, g.cast(other, torch.int64))
    return g.shape(total)
