"""Rows of a table with quantized entries: the rows are picked as integers, and dequantized afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_cpu.aot.quantized.table import integers_for
from delegraph_cpu.aot.quantized.weights import constant_weight
from delegraph_onnx.converters.indexing import places
from delegraph_onnx.converters.table import convert_named, name_of
from delegraph_onnx.dtypes import ALL
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.integers import Integers
from delegraph_onnx.node_facts import dtype_of, rank_of, shape_of


@integers_for("embedding")
def embedding(g: GraphBuilder, node: Node, weight: Node, indices: Node, *_: object) -> ir.Value | None:
    """`(table[indices] - zero_points[indices]) * scales[indices]`, for parameters by row or of the whole table."""
    table = g.integers.get(weight)
    if isinstance(table, Integers) and table.content is not None and table.axis in (None, 0):
        values, zero_point, scales = table.value, table.zero_point, g.constant(table.scale)
    else:
        constant = constant_weight(g, weight, 0)
        if constant is None:
            return None
        values, zero_point, scales = constant.inputs[0], constant.zero_point, constant.inputs[1]
    chosen = places(g, indices)

    def of_rows(parameters: ir.Value) -> ir.Value:
        """A number for each of the picked rows, with a dim for the columns; or a single one for all."""
        if not zero_point.ndim:
            return parameters
        return g.op("Gather", g.op("Reshape", parameters, g.ints([-1, 1])), chosen)

    rows = g.cast(g.op("Gather", values, chosen), torch.float32)
    if zero_point.any():
        rows = g.op("Sub", rows, of_rows(g.constant(zero_point.astype(np.float32))))
    real = g.op("Mul", rows, of_rows(scales))
    return real if dtype_of(node) == torch.float32 else g.cast(real, dtype_of(node))


# ---- ExecuTorch's operators ---------------------------------------------------------------------------------------

_SHIFTS: Final = {"embedding_byte": (), "embedding_4bit": (4, 0), "embedding_2bit": (0, 2, 4, 6)}
"""Positions of codes in a byte, in order: the first of two is the higher half, the first of four the lowest bits."""


def _embedding_of_codes(
    g: GraphBuilder, node: Node, weight: Node, scales: Node, zero_points: Node | None, low: int, high: int,
    indices: Node, *_: object,
) -> ir.Value:  # fmt: skip
    """`(codes[indices] - zero_points[indices]) * scales[indices]`, for scales by row or group of it."""
    shifts = _SHIFTS[name_of(node)]
    chosen = places(g, indices)
    rows = g.op("Gather", g.value(weight), chosen)
    real = g.cast(_codes(g, rows, shifts, rank_of(node)), torch.float32)
    if shifts:  # stored from 0
        real = g.op("Sub", real, g.constant(np.array(1 << 8 // len(shifts) - 1, np.float32)))
    grouped = rank_of(scales) == 2
    if grouped:
        real = g.op("Reshape", real, g.ints([*[0] * (rank_of(node) - 1), int(shape_of(scales)[1]), -1]))
    for parameters, op_type in ((zero_points, "Sub"), (scales, "Mul")):
        if parameters is not None:
            of_rows = g.cast(g.op("Gather", g.value(parameters), chosen), torch.float32)
            real = g.op(op_type, real, g.op("Unsqueeze", of_rows, g.ints([-1])))
    if grouped:
        real = g.op("Reshape", real, g.ints([*[0] * (rank_of(node) - 1), -1]))
    return real if dtype_of(node) == torch.float32 else g.cast(real, dtype_of(node))


def _codes(g: GraphBuilder, rows: ir.Value, shifts: Sequence[int], rank: int) -> ir.Value:
    """[..., bytes] -> [..., codes]."""
    if not shifts:
        return rows
    mask = g.constant(np.array((1 << 8 // len(shifts)) - 1, np.uint8))
    parts = []
    for shift in shifts:
        moved = g.op("BitShift", rows, g.constant(np.array(shift, np.uint8)), direction="RIGHT") if shift else rows
        parts.append(g.op("Unsqueeze", g.op("BitwiseAnd", moved, mask), g.ints([-1])))
    return g.op("Reshape", g.op("Concat", *parts, axis=-1), g.ints([*[0] * (rank - 1), -1]))


_NAMES: Final = [f"quantized_decomposed::{name}{overload}" for name in _SHIFTS for overload in ("", ".dtype")]
convert_named(*_NAMES, dtypes=ALL)(_embedding_of_codes)
