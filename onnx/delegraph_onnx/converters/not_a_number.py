"""Maxima, positions and orders in which NaN counts as in torch: larger than every number, and first among equals.

onnxruntime's operators for them compare, and every comparison with NaN is false: which of the elements they take
depends on where the NaN stands. A sum of squares tells whether there is one (infinities of both signs do not cancel in
it) in a single pass at the speed of memory, and only then do the operators that take care of it run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir
import torch

from delegraph_onnx.dtypes import INDICES
from delegraph_onnx.graph_builder import GraphBuilder

__all__ = ["extreme", "first_in_order", "has_nan", "position"]


def has_nan(g: GraphBuilder, *values: ir.Value) -> ir.Value:
    """Whether one of the float `values` has a NaN anywhere, a bool scalar."""
    first, *others = (g.op("IsNaN", g.op("ReduceSumSquare", value, keepdims=0)) for value in values)
    for other in others:
        first = g.op("Or", first, other)
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
    """The largest or least of integers, taken from where it stands along one axis after the other."""
    for axis in axes:
        value = g.op("GatherElements", value, g.op(f"Arg{kind}", value, axis=axis, keepdims=1), axis=axis)
    return value if keepdim else g.op("Squeeze", value, g.ints(axes))


def position(g: GraphBuilder, kind: str, value: ir.Value, dtype: torch.dtype, axis: int, keepdim: bool) -> ir.Value:
    """Where along `axis`, not negative, the "Max" or "Min" stands: the first NaN, if there is one."""

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
