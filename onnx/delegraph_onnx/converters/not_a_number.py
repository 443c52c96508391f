"""Maxima, positions and orders in which NaN counts as in torch: larger than every number, and first among equals.

onnxruntime's operators for them compare, and every comparison with NaN is false: which of the elements they take
depends on where the NaN stands. A sum of squares tells whether there is one (infinities of both signs do not cancel in
it) in a single pass at the speed of memory, and only then do the operators that take care of it run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from delegraph_onnx.dtypes import INDICES
from delegraph_onnx.graph_builder import GraphBuilder

__all__ = ["extreme", "first_in_order", "has_nan", "largest_in_windows", "position"]


def has_nan(g: GraphBuilder, *values: ir.Value) -> ir.Value:
    """Whether one of the float `values` has a NaN anywhere, a bool scalar."""
    first, *others = (g.op("IsNaN", g.op("ReduceSumSquare", value, keepdims=0)) for value in values)
    for flag in others:
        first = g.op("Or", first, flag)
    return first


def extreme(
    g: GraphBuilder, kind: str, value: ir.Value, dtype: torch.dtype, axes: Sequence[int], keepdim: bool
) -> ir.Value:
    """The "Max" or "Min" over `axes`: NaN where there is one. No axes, no change."""
    if not axes:
        return value
    if dtype in INDICES and not g.target.has(f"Reduce{kind}", dtype):
        return _at_its_place(g, kind, value, axes, keepdim)
    result = g.op(f"Reduce{kind}", value, g.ints(axes), keepdims=int(keepdim))
    if dtype in INDICES:
        return result
    squares = g.op("ReduceSumSquare", value, g.ints(axes), keepdims=int(keepdim))
    return g.op("Where", g.op("IsNaN", squares), g.tensor(math.nan, dtype), result)


def _at_its_place(g: GraphBuilder, kind: str, value: ir.Value, axes: Sequence[int], keepdim: bool) -> ir.Value:
    """The largest or least integer, gathered from its place along one axis after the other."""
    for axis in axes:
        value = g.op("GatherElements", value, g.op(f"Arg{kind}", value, axis=axis, keepdims=1), axis=axis)
    return value if keepdim else g.op("Squeeze", value, g.ints(axes))


def position(g: GraphBuilder, kind: str, value: ir.Value, dtype: torch.dtype, axis: int, keepdim: bool) -> ir.Value:
    """The place along `axis`, not negative, of the "Max" or "Min": that of the first NaN, if there is one."""

    def plain() -> ir.Value:
        return g.op(f"Arg{kind}", value, axis=axis, keepdims=int(keepdim))

    def careful() -> Sequence[ir.Value]:
        bad = g.cast(g.op("IsNaN", value), torch.int32)
        any_bad = g.cast(g.op("ReduceMax", bad, g.ints([axis]), keepdims=int(keepdim)), torch.bool)
        return [g.op("Where", any_bad, g.op("ArgMax", bad, axis=axis, keepdims=int(keepdim)), plain())]

    return plain() if dtype in INDICES else g.choose(has_nan(g, value), careful, lambda: [plain()])[0]


def first_in_order(
    g: GraphBuilder, value: ir.Value, dtype: torch.dtype, count: ir.Value, axis: int, largest: bool, sorted: bool
) -> Sequence[ir.Value]:
    """The `count` largest or smallest elements along `axis` (not negative) and where they stood."""

    def top(of: ir.Value, count: ir.Value) -> Sequence[ir.Value]:
        return g.ops("TopK", 2, of, count, axis=axis, largest=int(largest), sorted=int(sorted))

    def careful() -> Sequence[ir.Value]:
        """All in order, NaN standing as infinity; then NaN before infinity. TopK keeps the order of equals."""
        everything = g.op("Shape", value, start=axis, end=axis + 1)
        bad = g.op("IsNaN", value)
        infinite = g.op("Where", bad, g.tensor(math.inf, dtype), value)
        where = g.ops("TopK", 2, infinite, everything, axis=axis, largest=int(largest), sorted=1)[1]
        bad = g.op("GatherElements", g.cast(bad, torch.int32), where, axis=axis)
        chosen = g.ops("TopK", 2, bad, count, axis=axis, largest=int(largest), sorted=1)[1]
        where = g.op("GatherElements", where, chosen, axis=axis)
        return [g.op("GatherElements", value, where, axis=axis), where]

    if dtype in INDICES:
        return top(value, count)
    return g.choose(has_nan(g, value), careful, lambda: top(value, count))


def largest_in_windows(
    g: GraphBuilder, value: ir.Value, dtype: torch.dtype, window: Mapping[str, Any], image: Sequence[Any] | None
) -> Sequence[ir.Value]:
    """MaxPool with the attributes `window`: NaN where a window has one, and -inf where it has nothing else. With an
    `image` of these sizes also where in it they stand: the last NaN, and the first -inf."""
    results = 1 if image is None else 2

    def most(of: ir.Value) -> ir.Value:
        return g.op("MaxPool", of, **window)

    def plain() -> Sequence[ir.Value]:
        return g.ops("MaxPool", results, value, **window)

    def careful() -> Sequence[ir.Value]:
        none, inf = g.tensor(0.0, torch.float32), g.tensor(math.inf, dtype)
        places = g.tensor(1.0, torch.float32)  # from 1 on
        if image is not None:
            places = g.constant(np.arange(1, math.prod(image) + 1, dtype=np.float32).reshape(1, 1, *image))
        last_nan = most(g.op("Where", g.op("IsNaN", value), places, none))
        more = most(g.cast(g.op("Less", g.op("Neg", value), inf), torch.float32))
        bad, infinite = g.op("Less", none, last_nan), g.op("Equal", more, none)
        pooled, *where = plain()
        pooled = g.op("Where", infinite, g.op("Neg", inf), pooled)
        pooled = g.op("Where", bad, g.tensor(math.nan, dtype), pooled)
        if image is None:
            return [pooled]
        first = g.op("Neg", most(g.op("Neg", places)))
        place = g.op("Sub", g.op("Where", bad, last_nan, first), g.tensor(1.0, torch.float32))
        return [pooled, g.op("Where", g.op("Or", bad, infinite), g.cast(place, torch.int64), *where)]

    squares = g.op("ReduceSumSquare", value, keepdims=0)
    return g.choose(g.op("Less", squares, g.tensor(math.inf, dtype)), plain, careful)
