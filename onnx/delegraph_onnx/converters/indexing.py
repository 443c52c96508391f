"""Reading by index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.table import aten, convert_with, has_dims, unless
from delegraph_onnx.dtypes import ALL, INDICES, NUMBERS_OR_BOOL
from delegraph_onnx.graph_builder import GraphBuilder, Size
from delegraph_onnx.node_facts import are_known, dtype_of, in_words, rank_of, shape_of


def places(g: GraphBuilder, index: Node) -> ir.Value:
    """`index` for operators that count from 0 alone. Negative places must be refused, as torch does, but ONNX counts
    them from the end: without their sign they are too large, and an engine that refuses places refuses them."""
    known = g.constants.array(index)
    if not g.target.refuses_places or (known is not None and (known >= 0).all()):
        return g.value(index)
    return g.op("BitwiseAnd", g.value(index), g.tensor(torch.iinfo(dtype_of(index)).max, dtype_of(index)))


@convert_with("embedding", dtypes=ALL, keep=True)
def embedding(g: GraphBuilder, node: Node, weight: Node, indices: Node, *_: object) -> ir.Value:
    return g.op("Gather", g.value(weight), places(g, indices), axis=0)


@convert_with("index_select", dtypes=ALL, check=has_dims)
def index_select(g: GraphBuilder, node: Node, self: Node, dim: int, index: Node) -> ir.Value:
    chosen = places(g, index) if rank_of(index) else g.reshape(places(g, index), [1])
    return g.op("Gather", g.value(self), chosen, axis=dim)


@convert_with("gather", dtypes=ALL, check=has_dims)
def gather(g: GraphBuilder, node: Node, self: Node, dim: int, index: Node, *_: object) -> ir.Value:
    value = g.value(self)
    if not g.target.partial_gather:
        value = _cut(g, value, self, dim, index)
    return g.op("GatherElements", value, places(g, index), axis=dim)


def _cut(g: GraphBuilder, value: ir.Value, self: Node, dim: int, index: Node) -> ir.Value:
    """`self` with as many elements as `index` along each dim but `dim`."""
    for axis, (size, least) in enumerate(zip(shape_of(self), shape_of(index), strict=True)):
        if axis != dim % rank_of(self) and str(size) != str(least):
            step, count = g.tensor(1, torch.int64), g.size(g.value(index), axis)
            value = g.op("Gather", value, g.op("Range", g.tensor(0, torch.int64), count, step), axis=axis)
    return value


# ---- by several indices -------------------------------------------------------------------------------------------


@convert_with("index.Tensor", dtypes=ALL, check=unless(
    lambda node, self, indices: all(i is None or dtype_of(i) in INDICES for i in indices),
    "an index that is a mask: the size of the result depends on data"))  # fmt: skip
def index(g: GraphBuilder, node: Node, self: Node, indices: Sequence[Node | None]) -> ir.Value:
    """One index: Gather. Several: GatherND on the indexed dims, brought to the front."""
    dims = [dim for dim, i in enumerate(indices) if i is not None]
    index_tensors = [i for i in indices if i is not None]
    if len(index_tensors) == 1:
        return g.op("Gather", g.value(self), g.value(index_tensors[0]), axis=dims[0])
    front = [*dims, *(dim for dim in range(rank_of(self)) if dim not in dims)]
    picked = g.op("GatherND", g.transpose(g.value(self), front), stacked(g, index_tensors, self, dims, "GatherND"))
    width = max(rank_of(i) for i in index_tensors)
    if dims != list(range(dims[0], dims[0] + len(dims))):
        return picked  # indices apart: torch leaves the new dims in front
    rank = rank_of(node)
    return g.transpose(picked, [*range(width, width + dims[0]), *range(width), *range(width + dims[0], rank)])


def stacked(g: GraphBuilder, indices: Sequence[Node], self: Node, dims: Sequence[int], op_type: str) -> ir.Value:
    """Places along `dims` of `self` for `op_type`, broadcast against each other, side by side in a new last dim."""
    values = [g.tensor(i, torch.int64) for i in indices]
    if op_type not in g.target.negative_places:
        values = [_from_front(g, value, g.size(g.value(self), dim)) for value, dim in zip(values, dims, strict=True)]
    if len({in_words(shape_of(i)) for i in indices}) > 1:
        nought = g.tensor(0, torch.int64)
        zeros = [g.op("Mul", value, nought) for value in values]
        values = [g.total([value, *(z for z in zeros if z.producer().inputs[0] is not value)]) for value in values]  # type: ignore[union-attr]
    last = max(rank_of(i) for i in indices)
    raised = [g.op("Unsqueeze", value, g.ints([last])) for value in values]
    return raised[0] if len(raised) == 1 else g.op("Concat", *raised, axis=-1)


def _from_front(g: GraphBuilder, places: ir.Value, size: ir.Value) -> ir.Value:
    """Negative places counted from the front."""
    return g.op("Where", g.op("Less", places, g.tensor(0, torch.int64)), g.op("Add", places, size), places)


# ---- diagonals and strides: elements at known places --------------------------------------------------------------

MOST_PLACES = 1 << 20
"""The most indices that are written into the graph, 8 bytes each."""


def _known_places(node: Node, self: Node, *_: object) -> str | None:
    if not are_known(*shape_of(self), *shape_of(node)):
        return "a shape is dynamic"
    many = node.meta["val"].numel() > MOST_PLACES
    return f"more than {MOST_PLACES} elements that are picked one by one" if many else None


@convert_with("diagonal diagonal_copy", dtypes=ALL, check=_known_places)
def diagonal(g: GraphBuilder, node: Node, self: Node, offset: int, dim1: int, dim2: int) -> ir.Value:
    return _picked(g, self, torch.diagonal(numbered(self), offset, dim1, dim2))


@convert_with("as_strided as_strided_copy", dtypes=ALL, check=lambda node, self, *_: (
    _known_places(node, self) if self.meta["val"].is_contiguous() else "strides over a tensor that is not contiguous"
))  # fmt: skip
def as_strided(
    g: GraphBuilder, node: Node, self: Node, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> ir.Value:
    return _picked(g, self, torch.as_strided(numbered(self), size, stride, offset or 0))


def numbered(self: Node) -> torch.Tensor:
    """The places of the elements of `self`, in its shape."""
    return torch.arange(self.meta["val"].numel()).reshape([int(size) for size in shape_of(self)])


def _picked(g: GraphBuilder, self: Node, places: torch.Tensor) -> ir.Value:
    flat = g.op("Reshape", g.value(self), g.ints([-1]))
    return g.op("Gather", flat, g.constant(places.numpy()), axis=0)


# ---- triangles ----------------------------------------------------------------------------------------------------


@convert_with("tril triu", dtypes=NUMBERS_OR_BOOL)
def triangle(g: GraphBuilder, node: Node, self: Node, diagonal: Size) -> ir.Value:
    offset = g.constant(np.array(diagonal)) if isinstance(diagonal, int) else g.value(diagonal)
    return g.op("Trilu", g.value(self), offset, upper=int(node.target == aten("triu")))
