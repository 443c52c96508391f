"""Reading and writing by index."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_cpu.aot.converters.table import convert_with
from delegraph_cpu.aot.dtypes import ALL, INDICES, NUMBERS
from delegraph_cpu.aot.graph_builder import GraphBuilder, Size, TensorLike, dtype_of, rank_of, shape_of

INT64_MAX = 2**63 - 1
NUMBERS_OR_BOOL = NUMBERS | {torch.bool}


def _has_dims(node: Node, self: Node, *_: object) -> str | None:
    return None if rank_of(self) else "a tensor without dims"


@convert_with("embedding", dtypes=ALL, keep=True)
def embedding(g: GraphBuilder, node: Node, weight: Node, indices: Node, *_: object) -> ir.Value:
    return g.op("Gather", g.value(weight), g.value(indices), axis=0)


@convert_with("index_select", dtypes=ALL, check=_has_dims)
def index_select(g: GraphBuilder, node: Node, self: Node, dim: int, index: Node) -> ir.Value:
    chosen = g.value(index) if rank_of(index) else g.reshape(g.value(index), [1])
    return g.op("Gather", g.value(self), chosen, axis=dim)


@convert_with("gather", dtypes=ALL, check=_has_dims)
def gather(g: GraphBuilder, node: Node, self: Node, dim: int, index: Node, *_: object) -> ir.Value:
    return g.op("GatherElements", g.value(self), g.value(index), axis=dim)


# ---- by several indices -------------------------------------------------------------------------------------------


def _known_indices(node: Node, self: Node, indices: Sequence[Node | None], *_: object) -> str | None:
    if any(i is not None and dtype_of(i) not in INDICES for i in indices):
        return "an index that is a mask: the size of the result depends on data"
    return None


@convert_with("index.Tensor", dtypes=ALL, check=_known_indices)
def index(g: GraphBuilder, node: Node, self: Node, indices: Sequence[Node | None]) -> ir.Value:
    """One index: Gather. Several: GatherND on the indexed dims, brought to the front."""
    dims = [dim for dim, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    if len(given) == 1:
        return g.op("Gather", g.value(self), g.value(given[0]), axis=dims[0])
    front = [*dims, *(dim for dim in range(rank_of(self)) if dim not in dims)]
    picked = g.op("GatherND", g.transpose(g.value(self), front), _stacked(g, given))
    width = max(rank_of(i) for i in given)
    if dims != list(range(dims[0], dims[0] + len(dims))):
        return picked  # indices apart: torch leaves the new dims in front
    rank = rank_of(node)
    return g.transpose(picked, [*range(width, width + dims[0]), *range(width), *range(width + dims[0], rank)])


def _index_put_check(
    node: Node, self: Node, indices: Sequence[Node | None], values: Node, accumulate: bool
) -> str | None:
    reason = _known_indices(node, self, indices)
    if reason is not None:
        return reason
    if accumulate and dtype_of(self) == torch.bool:
        return "sums of bools"
    if _puts_rows(self, indices, values) or all(isinstance(size, int) for size in _put_shape(self, indices)):
        return None
    return "the place is dynamic"


def _put_shape(self: Node, indices: Sequence[Node | None]) -> list[object]:
    given = [i for i in indices if i is not None]
    rest = [size for dim, size in enumerate(shape_of(self)) if dim >= len(indices) or indices[dim] is None]
    return [*torch.broadcast_shapes(*(shape_of(i) for i in given)), *rest]


@convert_with("index_put", dtypes=NUMBERS_OR_BOOL, check=_index_put_check)
def index_put(
    g: GraphBuilder, node: Node, self: Node, indices: Sequence[Node | None], values: Node, accumulate: bool
) -> ir.Value:
    """ScatterND: of rows where they lie, else on the indexed dims, brought to the front and back."""
    if _puts_rows(self, indices, values):
        return _put_rows(g, self, indices, values, "add" if accumulate else None)
    dims = [dim for dim, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    rest = [dim for dim in range(rank_of(self)) if dim not in dims]
    front = [*dims, *rest]
    target = _put_shape(self, indices)
    width = len(target) - len(rest)
    updates = g.value(values)
    if dims == list(range(dims[0], dims[0] + len(dims))) and dims[0] > 0:
        # torch's values have the indexed dims where they stand in `self`; ours are in front
        shape = [*target[width : width + dims[0]], *target[:width], *target[width + dims[0] :]]
        placed = g.op("Expand", updates, g.ints(shape))  # type: ignore[arg-type]
        lead = dims[0]
        updates = g.transpose(placed, [*range(lead, lead + width), *range(lead), *range(lead + width, len(shape))])
    else:
        updates = g.op("Expand", updates, g.ints(target))  # type: ignore[arg-type]
    written = g.op(
        "ScatterND",
        g.transpose(g.value(self), front),
        _stacked(g, given),
        updates,
        reduction="add" if accumulate else None,
    )
    return g.transpose(written, [front.index(dim) for dim in range(len(front))])


def _puts_rows(self: Node, indices: Sequence[Node | None], values: Node) -> bool:
    """Whether one dim is indexed, and a whole row behind it is put at each place, as into a cache.

    Then the places of the rows in `self` as it lies cost less than bringing the indexed dim to the front.
    """
    dims = [dim for dim, i in enumerate(indices) if i is not None]
    lead, row = shape_of(self)[: dims[0]], shape_of(self)[dims[0] + 1 :]
    if len(dims) > 1 or not all(isinstance(size, int) for size in (*lead, *row)):
        return False
    index = indices[dims[0]]
    assert index is not None
    target = (*lead, *shape_of(index), *row)
    return math.prod(map(int, row)) >= _ROW and tuple(map(str, shape_of(values))) == tuple(map(str, target))


_ROW = 8
"""Elements of a row from which an address for each is worth it: an address is a number of 8 bytes for each dim."""


def _put_rows(
    g: GraphBuilder, self: Node, indices: Sequence[Node | None], values: Node, reduction: str | None
) -> ir.Value:
    """self[:, …, index] = values, as ScatterND at the addresses (…, index) of all rows.

    addresses = grid of the leading dims, 0 last  +  index * (0, …, 0, 1)      [*lead, *index.shape, len(lead) + 1]
    """
    dim, index = next((dim, i) for dim, i in enumerate(indices) if i is not None)
    lead = [int(size) for size in shape_of(self)[:dim]]
    grid = np.stack([*np.indices(lead), np.zeros(lead, np.int64)], -1).astype(np.int64)
    grid = grid.reshape(*lead, *[1] * rank_of(index), len(lead) + 1)
    unit = np.eye(len(lead) + 1, dtype=np.int64)[-1]
    last = g.op("Unsqueeze", g.tensor(index, torch.int64), g.ints([-1]))
    addresses = g.op("Add", g.constant(grid), g.op("Mul", last, g.constant(unit))) if lead else last
    return g.op("ScatterND", g.value(self), addresses, g.value(values), reduction=reduction)


def _stacked(g: GraphBuilder, indices: Sequence[Node]) -> ir.Value:
    """Indices broadcast against each other, side by side in a new last dim."""
    values = [g.tensor(i, torch.int64) for i in indices]
    if len({tuple(map(str, shape_of(i))) for i in indices}) > 1:
        nought = g.tensor(0, torch.int64)
        zeros = [g.op("Mul", value, nought) for value in values]
        values = [g.total([value, *(z for z in zeros if z.producer().inputs[0] is not value)]) for value in values]  # type: ignore[union-attr]
    last = max(rank_of(i) for i in indices)
    raised = [g.op("Unsqueeze", value, g.ints([last])) for value in values]
    return raised[0] if len(raised) == 1 else g.op("Concat", *raised, axis=-1)


# ---- scatter ------------------------------------------------------------------------------------------------------


@convert_with(
    "scatter.src", dtypes=NUMBERS_OR_BOOL, check=lambda node, self, dim, index, src: _whole_source(self, index, src)
)
def scatter(g: GraphBuilder, node: Node, self: Node, dim: int, index: Node, src: Node) -> ir.Value:
    return g.op("ScatterElements", g.value(self), g.value(index), g.value(src), axis=dim)


@convert_with("scatter.value", dtypes=NUMBERS_OR_BOOL, check=_has_dims)
def scatter_value(g: GraphBuilder, node: Node, self: Node, dim: int, index: Node, value: TensorLike) -> ir.Value:
    where = g.value(index)
    filled = g.op("Expand", g.tensor(value, dtype_of(node)), g.op("Shape", where))
    return g.op("ScatterElements", g.value(self), where, filled, axis=dim)


@convert_with(
    "scatter_add",
    dtypes=NUMBERS,
    check=lambda node, self, dim, index, src: _whole_source(self, index, src),
)
def scatter_add(g: GraphBuilder, node: Node, self: Node, dim: int, index: Node, src: Node) -> ir.Value:
    return g.op("ScatterElements", g.value(self), g.value(index), g.value(src), axis=dim, reduction="add")


def _whole_source(self: Node, index: Node, src: Node) -> str | None:
    if not rank_of(self):
        return "a tensor without dims"
    same = tuple(map(str, shape_of(index))) == tuple(map(str, shape_of(src)))
    return None if same else "only a part of the source is scattered"


def _known_place(node: Node, self: Node, src: Node, dim: int, start: object, end: object, step: object) -> str | None:
    if not all(value is None or isinstance(value, int) for value in (start, end)) or step != 1:
        return "a place that is not known, or a step"
    return None if isinstance(shape_of(self)[dim], int) else "the dim is dynamic"


@convert_with("slice_scatter", dtypes=NUMBERS_OR_BOOL, check=_known_place)
def slice_scatter(
    g: GraphBuilder, node: Node, self: Node, src: Node, dim: int, start: int | None, end: int | None, step: int
) -> ir.Value:
    size = int(shape_of(self)[dim])
    first, last, _ = slice(start, end).indices(size)
    return _replaced(g, self, g.value(src), dim, first, last)


@convert_with("select_scatter", dtypes=NUMBERS_OR_BOOL, check=lambda node, self, src, dim, index: (
    _known_place(node, self, src, dim, index, None, 1)))  # fmt: skip
def select_scatter(g: GraphBuilder, node: Node, self: Node, src: Node, dim: int, index: int) -> ir.Value:
    axis = dim % rank_of(self)
    first = index % int(shape_of(self)[axis])
    return _replaced(g, self, g.op("Unsqueeze", g.value(src), g.ints([axis])), axis, first, first + 1)


def _replaced(g: GraphBuilder, self: Node, middle: ir.Value, dim: int, first: int, last: int) -> ir.Value:
    """`self` with [first, last) of `dim` replaced."""
    axis, value = g.ints([dim % rank_of(self)]), g.value(self)
    parts = [middle]
    if first > 0:
        parts.insert(0, g.op("Slice", value, g.ints([0]), g.ints([first]), axis))
    if last < int(shape_of(self)[dim]):
        parts.append(g.op("Slice", value, g.ints([last]), g.ints([INT64_MAX]), axis))
    return middle if len(parts) == 1 else g.op("Concat", *parts, axis=dim)


# ---- triangles ----------------------------------------------------------------------------------------------------

for _name, _upper in (("tril", 0), ("triu", 1)):

    def _triangle(g: GraphBuilder, node: Node, self: Node, diagonal: Size, upper: int = _upper) -> ir.Value:
        offset = g.constant(np.array(diagonal)) if isinstance(diagonal, int) else g.value(diagonal)
        return g.op("Trilu", g.value(self), offset, upper=upper)

    convert_with(_name, dtypes=NUMBERS_OR_BOOL)(_triangle)
