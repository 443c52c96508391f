"""Rows of a table whose entries are quantized: the rows are picked as integers, and dequantized by themselves."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_cpu.aot.graph_builder import GraphBuilder, dtype_of, rank_of
from delegraph_cpu.aot.quantized.table import integers_for
from delegraph_cpu.aot.quantized.values import Integers


@integers_for("embedding")
def embedding(g: GraphBuilder, node: Node, weight: Node, indices: Node, *_: object) -> ir.Value | None:
    """`(table[indices] - zero_points[indices]) * scales[indices]`, for parameters by row or of the whole table."""
    table = g.integers.get(weight)
    if not isinstance(table, Integers) or table.content is None or table.axis not in (None, 0):
        return None
    rows = g.cast(g.op("Gather", table.value, g.value(indices)), torch.float32)
    zero_points, scales = table.zero_point.astype(np.float32), table.scale
    if zero_points.any():
        rows = g.op("Sub", rows, _of_rows(g, zero_points, indices))
    real = g.op("Mul", rows, _of_rows(g, scales, indices))
    return real if dtype_of(node) == torch.float32 else g.cast(real, dtype_of(node))


def _of_rows(g: GraphBuilder, parameters: np.ndarray[tuple[int, ...], np.dtype[np.float32]], indices: Node) -> ir.Value:
    """One number for each of `indices`, with a dim for the columns; or one for all."""
    values = g.constant(parameters)
    if not parameters.ndim:
        return values
    return g.op("Unsqueeze", g.op("Gather", values, g.value(indices)), g.ints([rank_of(indices)]))
