"""Writing by index: index_put, scatter, slices replaced."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.division import floor_of_integers
from delegraph_onnx.converters.empty_results import is_empty
from delegraph_onnx.converters.indexing import numbered, places, stacked
from delegraph_onnx.converters.not_a_number import has_nan
from delegraph_onnx.converters.pointwise import select_where
from delegraph_onnx.converters.table import convert_with, has_dims
from delegraph_onnx.dtypes import INDICES, INT64_MAX, NARROW, NUMBERS, NUMBERS_OR_BOOL
from delegraph_onnx.graph_builder import GraphBuilder, Scalar, Size, TensorLike
from delegraph_onnx.node_facts import are_known, dtype_of, rank_of, same_sizes, shape_of

# ---- index_put ----------------------------------------------------------------------------------------------------


def _index_put_check(
    node: Node, self: Node, indices: Sequence[Node | None], values: Node, accumulate: bool
) -> str | None:
    if accumulate and dtype_of(self) == torch.bool:
        return "sums of bools"
    present = [i for i in indices if i is not None]
    if all(dtype_of(i) in INDICES for i in present):
        return None
    if len(present) > 1 or dtype_of(present[0]) != torch.bool:
        return "a mask beside other indices"
    return None if _puts_the_same(self, indices, values) or present[0] is indices[0] else "a mask behind other dims"


def _puts_the_same(self: Node, indices: Sequence[Node | None], values: Node) -> bool:
    """Whether all places of a mask get the same value: the dims of `values` before those behind the mask are 1."""
    dim, mask = next((dim, i) for dim, i in enumerate(indices) if i is not None)
    behind = rank_of(self) - dim - rank_of(mask)
    leading = shape_of(values)[: max(0, rank_of(values) - behind)]
    return all(isinstance(size, int) and size == 1 for size in leading)


@convert_with("index_put", dtypes=NUMBERS_OR_BOOL, check=_index_put_check)
def index_put(
    g: GraphBuilder, node: Node, self: Node, indices: Sequence[Node | None], values: Node, accumulate: bool
) -> ir.Value:
    """ScatterND: whole rows in place, otherwise on the indexed dims, which are moved to the front and back."""
    dims = [dim for dim, i in enumerate(indices) if i is not None]
    index_tensors = [i for i in indices if i is not None]
    if dtype_of(index_tensors[0]) == torch.bool and _puts_the_same(self, indices, values):
        return _put_where(g, self, index_tensors[0], dims[0], values, accumulate)
    if dtype_of(index_tensors[0]) == torch.bool:
        return _put_in_order(g, self, index_tensors[0], values, accumulate)
    if _puts_rows(self, indices, values):
        lead, index = [int(size) for size in shape_of(self)[: dims[0]]], g.tensor(index_tensors[0], torch.int64)
        reduction = "add" if accumulate else None
        return put_rows(g, g.value(self), lead, index, rank_of(index_tensors[0]), g.value(values), reduction)
    # ScatterND indexes leading dims only:
    #   x (a, i, b) at i  ->  Transpose (i, a, b) ── ScatterND ── Transpose (a, i, b)
    rest = [dim for dim in range(rank_of(self)) if dim not in dims]
    front, width = [*dims, *rest], max(rank_of(i) for i in index_tensors)
    places, begin = stacked(g, index_tensors, self, dims, "ScatterND"), dims[0]
    if dims != list(range(begin, begin + len(dims))):
        begin = 0  # indices apart: torch has the new dims in front, as ScatterND has them always
    # torch's values have the index's dims in the place of the indexed ones, ScatterND's updates have them in front
    before, after = ([dim for dim in rest if (dim < dims[0]) == early] for early in (True, False))
    sizes = _sizes_of(g, g.value(self), before if begin else [])
    sizes += [g.op("Slice", g.op("Shape", places), g.ints([0]), g.ints([width]))] if width else []
    sizes += _sizes_of(g, g.value(self), after if begin else rest)
    updates = g.op("Expand", g.value(values), g.op("Concat", *sizes, axis=0)) if sizes else g.value(values)
    order = [*range(begin, begin + width), *range(begin), *range(begin + width, width + len(rest))]
    written = g.op(
        "ScatterND",
        g.transpose(g.value(self), front),
        places,
        g.transpose(updates, order),
        reduction="add" if accumulate else None,
    )
    return g.transpose(written, [front.index(dim) for dim in range(len(front))])


def _one_index(node: Node, self: Node, dim: int, index: Node, source: Node, alpha: Scalar = 1) -> str | None:
    if not rank_of(self) or rank_of(index) != 1 or rank_of(source) != rank_of(self):
        return "a tensor, an index or a source that is one number"
    if dtype_of(source) != dtype_of(self):
        return "a source of another dtype"
    return "slices that are added times a number" if alpha != 1 else None


@convert_with(
    "index_add",
    dtypes=NUMBERS | INDICES,
    keep=True,
    check=_one_index,
)
def index_add(
    g: GraphBuilder, node: Node, self: Node, dim: int, index: Node, source: Node, alpha: Scalar = 1
) -> ir.Value:
    return _put_along(g, node, self, dim, index, source, True)


@convert_with("index_copy", dtypes=NUMBERS_OR_BOOL, keep=True, check=_one_index)
def index_copy(g: GraphBuilder, node: Node, self: Node, dim: int, index: Node, source: Node) -> ir.Value:
    return _put_along(g, node, self, dim, index, source, False)


def _put_along(
    g: GraphBuilder, node: Node, self: Node, dim: int, index: Node, source: Node, accumulate: bool
) -> ir.Value:
    """As `index_put`, but negative places are refused."""
    indices = [*[None] * (dim % rank_of(self)), index]
    with g.standing_for({index: places(g, index)}):
        return index_put(g, node, self, indices, source, accumulate)


def _puts_rows(self: Node, indices: Sequence[Node | None], values: Node) -> bool:
    """Whether one dim is indexed, and a whole row behind it is put at each place, as into a cache.

    Then addressing the rows of `self` in place costs less than moving the indexed dim to the front.
    """
    dims = [dim for dim, i in enumerate(indices) if i is not None]
    lead, row = shape_of(self)[: dims[0]], shape_of(self)[dims[0] + 1 :]
    if len(dims) > 1 or not are_known(*lead, *row):
        return False
    index = indices[dims[0]]
    assert index is not None
    target = (*lead, *shape_of(index), *row)
    return math.prod(map(int, row)) >= _ROW and same_sizes(shape_of(values), target)


_ROW = 8
"""The least elements of a row for which its address is worth it: an address is a number of 8 bytes for each dim."""


def put_rows(
    g: GraphBuilder, target: ir.Value, lead: Sequence[int], index: ir.Value, rank: int, values: ir.Value,
    reduction: str | None = None,
) -> ir.Value:  # fmt: skip
    """target[:, …, index] = values, as ScatterND at the addresses (…, index) of all rows; `index`, int64, has `rank`
    dims, and `lead` are the sizes before the one that it is in.

    addresses = grid of the leading dims, 0 last  +  index * (0, …, 0, 1)      [*lead, *index.shape, len(lead) + 1]
    """
    grid = np.stack([*np.indices(lead), np.zeros(lead, np.int64)], -1).astype(np.int64)
    grid = grid.reshape(*lead, *[1] * rank, len(lead) + 1)
    unit = np.eye(len(lead) + 1, dtype=np.int64)[-1]
    last = g.op("Unsqueeze", index, g.ints([-1]))
    addresses = g.op("Add", g.constant(grid), g.op("Mul", last, g.constant(unit))) if lead else last
    return g.op("ScatterND", target, addresses, values, reduction=reduction)


def _sizes_of(g: GraphBuilder, value: ir.Value, dims: Sequence[int]) -> list[ir.Value]:
    """The sizes of `dims` as a vector; nothing for no dims."""
    return [g.op("Gather", g.op("Shape", value), g.ints(dims), axis=0)] if dims else []


def _put_where(g: GraphBuilder, self: Node, mask: Node, dim: int, values: Node, accumulate: bool) -> ir.Value:
    """The same value, or the same last dims, wherever the mask is true."""
    behind, new = rank_of(self) - dim - rank_of(mask), g.tensor(values, dtype_of(self))
    if rank_of(values) > behind:
        new = g.op("Squeeze", new, g.ints(range(rank_of(values) - behind)))
    return _put(g, self, g.value(mask), behind, new, accumulate)


def _put(g: GraphBuilder, self: Node, chosen: ir.Value, behind: int, new: ir.Value, accumulate: bool) -> ir.Value:
    """`new`, or the sum with it, where `chosen`, which lacks the last `behind` dims."""
    wide = g.op("Unsqueeze", chosen, g.ints([-1 - i for i in range(behind)])) if behind else chosen
    new = g.op("Add", g.value(self), new) if accumulate else new
    return select_where(g, wide, new, g.value(self), dtype_of(self))


def _put_in_order(g: GraphBuilder, self: Node, mask: Node, values: Node, accumulate: bool) -> ir.Value:
    """The n-th true place of the mask gets the n-th of `values`, behind which one is added for a mask without any."""
    dtype, behind = dtype_of(self), rank_of(self) - rank_of(mask)
    rows, chosen = g.tensor(values, dtype), g.value(mask)
    if rank_of(values) < behind + 1:
        rows = g.op("Unsqueeze", rows, g.ints(range(behind + 1 - rank_of(values))))
    rows = g.op(
        "Pad",
        g.cast(rows, torch.int32) if dtype == torch.bool else rows,
        g.ints([*[0] * (behind + 1), 1, *[0] * behind]),
    )
    flat = g.cast(g.op("Reshape", chosen, g.ints([-1])), torch.int64)
    # the number of true places before each; a false place reads the first row, which is not chosen
    number = g.op("Mul", g.op("CumSum", flat, g.constant(np.array(0)), exclusive=1), flat)
    new = g.op("Gather", rows, g.op("Reshape", number, g.op("Shape", chosen)), axis=0)
    new = g.cast(new, dtype) if dtype == torch.bool else new
    return _put(g, self, chosen, behind, new, accumulate)


@convert_with("masked_scatter", dtypes=NUMBERS_OR_BOOL)
def masked_scatter(g: GraphBuilder, node: Node, self: Node, mask: Node, source: Node) -> ir.Value:
    """The n-th true place gets the n-th element."""
    value = g.op("Expand", g.value(self), g.op("Shape", g.value(mask)))  # the mask may have more dims
    chosen = g.op("Expand", g.value(mask), g.op("Shape", value))
    flat = g.cast(g.op("Reshape", chosen, g.ints([-1])), torch.int64)
    number = g.op("CumSum", flat, g.constant(np.array(0)))
    # before the first true place the sum is 0, and -1 would be read
    number = g.op("Max", g.op("Sub", number, g.tensor(1, torch.int64)), g.tensor(0, torch.int64))
    last = g.op("Sub", g.op("Size", g.value(source)), g.tensor(1, torch.int64))
    elements = g.op("Reshape", g.value(source), g.ints([-1]))
    picked = g.op("Gather", elements, g.op("Min", number, last), axis=0)
    return select_where(g, chosen, g.op("Reshape", picked, g.op("Shape", value)), value, dtype_of(node))


# ---- scatter ------------------------------------------------------------------------------------------------------


REDUCTIONS: Final = {
    **{"sum": "add", "prod": "mul", "amax": "max", "amin": "min"},
    **{"add": "add", "multiply": "mul"},  # what the older operators call them
}
"""torch's names of reductions: ONNX's."""


@convert_with("scatter.src", dtypes=NUMBERS_OR_BOOL, check=has_dims)
@convert_with("scatter.reduce", dtypes=NUMBERS, check=has_dims)
def scatter(g: GraphBuilder, node: Node, self: Node, dim: int, index: Node, src: Node, reduce: str = "") -> ir.Value:
    values = _indexed_part(g, index, src)
    return g.op("ScatterElements", g.value(self), places(g, index), values, axis=dim, reduction=REDUCTIONS.get(reduce))


@convert_with("scatter.value", dtypes=NUMBERS_OR_BOOL, check=has_dims)
@convert_with("scatter.value_reduce", dtypes=NUMBERS, check=has_dims)
def scatter_value(
    g: GraphBuilder, node: Node, self: Node, dim: int, index: Node, value: TensorLike, reduce: str = ""
) -> ir.Value:
    where = places(g, index)
    filled = g.op("Expand", g.tensor(value, dtype_of(node)), g.op("Shape", where))
    return g.op("ScatterElements", g.value(self), where, filled, axis=dim, reduction=REDUCTIONS.get(reduce))


@convert_with("scatter_add", dtypes=NUMBERS, check=has_dims)
def scatter_add(g: GraphBuilder, node: Node, self: Node, dim: int, index: Node, src: Node) -> ir.Value:
    return scatter(g, node, self, dim, index, src, "add")


def _neutral(reduce: str, dtype: torch.dtype) -> Scalar:
    """The neutral element of a reduction."""
    if reduce in ("sum", "mean", "prod"):
        return int(reduce == "prod")
    lowest, highest = (
        (-math.inf, math.inf) if dtype.is_floating_point else (torch.iinfo(dtype).min, torch.iinfo(dtype).max)
    )
    return lowest if reduce == "amax" else highest


def _reducible(
    node: Node, self: Node, dim: int, index: Node, src: Node, reduce: str, include_self: bool = True
) -> str | None:
    if reduce == "mean" and dtype_of(node) in NARROW:
        return "the mean of integers of 8 or 16 bits, whose sum wraps before it is divided"
    return has_dims(node, self, dim)


@convert_with("scatter_reduce.two", dtypes=NUMBERS, check=_reducible)
def scatter_reduce(
    g: GraphBuilder, node: Node, self: Node, dim: int, index: Node, src: Node, reduce: str, include_self: bool
) -> ir.Value:
    dtype, target, where, source = dtype_of(node), g.value(self), places(g, index), _indexed_part(g, index, src)

    def scattered(onto: ir.Value, values: ir.Value, reduction: str | None = None) -> ir.Value:
        return g.op("ScatterElements", onto, where, values, axis=dim, reduction=reduction)

    def filled(number: Scalar, like: ir.Value) -> ir.Value:
        return g.op("Expand", g.tensor(number, dtype), g.op("Shape", like))

    def with_nan() -> Sequence[ir.Value]:
        """A maximum compares, and a comparison does not see NaN."""
        before, new = (g.cast(g.op("IsNaN", value), torch.int32) for value in (start, source))
        spoilt = scattered(before, new, "max")
        return [g.op("Where", g.cast(spoilt, torch.bool), g.tensor(math.nan, dtype), result)]

    # without self, the elements at these places must not count; all others stay
    start = target if include_self else scattered(target, filled(_neutral(reduce, dtype), where))
    result = scattered(start, source, REDUCTIONS.get(reduce, "add"))
    if reduce == "mean":
        counts = scattered(filled(int(include_self), target), filled(1, where), "add")
        # a place without elements keeps its value
        count = g.op("Max", counts, g.tensor(1, dtype))
        return floor_of_integers(g, result, count, dtype) if dtype in INDICES else g.op("Div", result, count)
    if reduce in ("amax", "amin") and dtype.is_floating_point:
        return g.choose(has_nan(g, start, source), with_nan, lambda: [result])[0]
    return result


def _indexed_part(g: GraphBuilder, index: Node, src: Node) -> ir.Value:
    """torch reads the elements of the source at the places of the index."""
    if same_sizes(shape_of(index), shape_of(src)):
        return g.value(src)
    start = g.ints([0] * rank_of(src))
    return g.op("Slice", g.value(src), start, g.op("Shape", g.value(index)))


# ---- slices -------------------------------------------------------------------------------------------------------


def _known_place(node: Node, self: Node, src: Node, dim: int, start: object, end: object, step: object) -> str | None:
    if isinstance(shape_of(self)[dim], int) and all(value is None or isinstance(value, int) for value in (start, end)):
        return None
    if step != 1:
        return "steps in a place that is dynamic"
    negative = isinstance(start, int) and start < 0
    return "a place counted from the end of a dynamic dim" if negative else None


@convert_with("slice_scatter", dtypes=NUMBERS_OR_BOOL, check=_known_place, takes_empty=True)
def slice_scatter(
    g: GraphBuilder, node: Node, self: Node, src: Node, dim: int, start: Size | None, end: Size | None, step: int
) -> ir.Value:
    if is_empty(src.meta["val"]):
        return g.value(self)
    size, axis, middle = shape_of(self)[dim], dim % rank_of(self), g.value(src)
    if isinstance(size, int) and not isinstance(start, Node) and not isinstance(end, Node):
        first, last, _ = slice(start, end).indices(size)
        if step == 1:
            return _replaced(g, self, middle, dim, first, last)
        front = [axis, *(i for i in range(rank_of(self)) if i != axis)]
        places = g.constant(np.arange(first, last, step)[:, None])
        written = g.op("ScatterND", g.transpose(g.value(self), front), places, g.transpose(middle, front))
        return g.transpose(written, [front.index(i) for i in range(len(front))])
    begin = g.sizes([start if start is not None else 0])
    # a place that a run tells: the part before it, the source, the part behind it
    stop = g.op("Add", begin, g.op("Shape", middle, start=axis, end=axis + 1))
    value, axes = g.value(self), g.ints([axis])
    before = g.op("Slice", value, g.ints([0]), begin, axes)
    return g.op("Concat", before, middle, g.op("Slice", value, stop, g.ints([INT64_MAX]), axes), axis=axis)


@convert_with("diagonal_scatter", dtypes=NUMBERS_OR_BOOL, check=lambda node, self, *_: (
    None if are_known(*shape_of(self)) else "the shape is dynamic"))  # fmt: skip
def diagonal_scatter(g: GraphBuilder, node: Node, self: Node, src: Node, offset: int, dim1: int, dim2: int) -> ir.Value:
    sizes = [int(size) for size in shape_of(self)]
    places = torch.diagonal(numbered(self), offset, dim1, dim2).reshape(-1, 1)
    flat, new = (g.op("Reshape", g.value(tensor), g.ints([-1])) for tensor in (self, src))
    return g.op("Reshape", g.op("ScatterND", flat, g.constant(places.numpy()), new), g.ints(sizes))


@convert_with("select_scatter", dtypes=NUMBERS_OR_BOOL, check=lambda node, self, src, dim, index: (
    None if isinstance(index, int) and isinstance(shape_of(self)[dim], int) else "the place is dynamic"))  # fmt: skip
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
