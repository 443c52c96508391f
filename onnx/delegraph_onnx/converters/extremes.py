"""The larger and the smaller of two, limits and signs; by comparisons where a target's own operators are not exact.

    Max(a, b)              Where(Greater(a, b), a, b)
    Clip(x, low, high)     the smaller of the larger
    Sign(x)                (x > 0) - (x < 0)

onnxruntime's Max, Min and Clip of int64 are wrong from 2^31 on (1.31).
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir
import torch

from delegraph_onnx.graph_builder import GraphBuilder

__all__ = ["limited", "of_two", "sign_of"]

_COMPARISONS: Final = {"Max": "Greater", "Min": "Less"}


def of_two(g: GraphBuilder, kind: str, a: ir.Value, b: ir.Value, dtype: torch.dtype) -> ir.Value:
    """The "Max" or "Min" of each pair of elements, both of `dtype`."""
    if g.target.has(kind, dtype):
        return g.op(kind, a, b)
    return g.op("Where", g.op(_COMPARISONS[kind], a, b), a, b)


def limited(
    g: GraphBuilder, value: ir.Value, low: ir.Value | None, high: ir.Value | None, dtype: torch.dtype
) -> ir.Value:
    """`value` within the given scalar bounds; the upper bound where they cross."""
    if g.target.has("Clip", dtype):
        return g.op("Clip", value, low, high)
    value = value if low is None else of_two(g, "Max", value, low, dtype)
    return value if high is None else of_two(g, "Min", value, high, dtype)


def sign_of(g: GraphBuilder, value: ir.Value, dtype: torch.dtype) -> ir.Value:
    """-1, 0 or 1; NaN of NaN."""
    if g.target.has("Sign", dtype):
        return g.op("Sign", value)
    zero = g.tensor(0, dtype)
    above, below = (g.cast(g.op(comparison, value, zero), dtype) for comparison in ("Greater", "Less"))
    return g.op("Sub", above, below)
