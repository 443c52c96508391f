"""The larger and the smaller, comparisons, limits and signs; by others where a target's own operators are not exact.

    Max(a, b)              Where(Greater(a, b), a, b)
    Clip(x, low, high)     the smaller of the larger
    Sign(x)                (x > 0) - (x < 0)

onnxruntime's of int64 are wrong from 2^31 on (1.31); OpenVINO's CPU device computes integers as float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import onnx_ir as ir
import torch

from delegraph_onnx.graph_builder import GraphBuilder

__all__ = ["compare", "limited", "of_many", "of_two", "sign_of"]

_COMPARISONS: Final = {"Max": "Greater", "Min": "Less"}


def of_two(g: GraphBuilder, kind: str, a: ir.Value, b: ir.Value, dtype: torch.dtype) -> ir.Value:
    """The "Max" or "Min" of each pair of elements, both of `dtype`."""
    if g.target.has(kind, dtype):
        return g.op(kind, a, b)
    return g.op("Where", g.op(_COMPARISONS[kind], a, b), a, b)


def limited(
    g: GraphBuilder, value: ir.Value, low: ir.Value | None, high: ir.Value | None, dtype: torch.dtype
) -> ir.Value:
    """`value` within the bounds that there are, scalars; the upper one where they cross."""
    if g.target.has("Clip", dtype):
        return g.op("Clip", value, low, high)
    value = value if low is None else of_two(g, "Max", value, low, dtype)
    return value if high is None else of_two(g, "Min", value, high, dtype)


def compare(g: GraphBuilder, op_type: str, a: ir.Value, b: ir.Value, dtype: torch.dtype) -> ir.Value:
    """The ONNX comparison `op_type` of two tensors of `dtype`.

    A target that compares integers as float32 rounds neighbours to one number; those are so close that their difference
    is exact, and says which one is larger.
    """
    if g.target.has(op_type, dtype):
        return g.op(op_type, a, b)
    zero = g.tensor(0, dtype)
    if op_type == "Equal":
        return g.op("Equal", g.op("BitwiseXor", a, b), zero)
    apart = g.op(op_type.removesuffix("OrEqual"), a, b)
    return g.op("Or", apart, g.op("And", g.op("Equal", a, b), g.op(op_type, g.op("Sub", a, b), zero)))


def of_many(
    g: GraphBuilder, kind: str, value: ir.Value, dtype: torch.dtype, axes: Sequence[int], keepdim: bool
) -> ir.Value:
    """The "Max" or "Min" over `axes`, not negative, of `dtype`.

    For a target that compares integers as float32, which holds multiples of 2^16 and what lies between two of them: the
    upper halves first, then the lower halves of those that have the largest upper one.
    """
    if not dtype.is_floating_point and not g.target.has(f"Reduce{kind}", dtype):
        lower = g.op("BitwiseAnd", value, g.tensor(0xFFFF, dtype))
        upper = g.op("Sub", value, lower)
        best = g.op(f"Reduce{kind}", upper, g.ints(axes), keepdims=1)
        none = g.tensor(-1 if kind == "Max" else 1 << 16, dtype)
        rest = g.op("Where", g.op("Equal", upper, best), lower, none)
        result = g.op("Add", best, g.op(f"Reduce{kind}", rest, g.ints(axes), keepdims=1))
        return result if keepdim else g.op("Squeeze", result, g.ints(axes))
    return g.op(f"Reduce{kind}", value, g.ints(axes), keepdims=int(keepdim))


def sign_of(g: GraphBuilder, value: ir.Value, dtype: torch.dtype) -> ir.Value:
    """-1, 0 or 1; of floats also NaN, of NaN."""
    if g.target.has("Sign", dtype):
        return g.op("Sign", value)
    zero = g.tensor(0, dtype)
    above, below = (g.cast(g.op(comparison, value, zero), dtype) for comparison in ("Greater", "Less"))
    return g.op("Sub", above, below)
