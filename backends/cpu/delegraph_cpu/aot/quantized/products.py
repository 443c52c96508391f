"""Linear layers and matrix products of integers, and of values that are quantized at run time."""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_cpu.aot.graph import CONTRIB, CpuGraph
from delegraph_cpu.aot.quantized.packed import float_linear
from delegraph_cpu.aot.quantized.table import activation, integers_for
from delegraph_cpu.aot.quantized.weights import KnownWeight, Weight, bias_value, constant_weight
from delegraph_onnx.converters.quantization import chosen_as_it_comes
from delegraph_onnx.graph_builder import Scalar
from delegraph_onnx.integers import Affine, Integers, shifted
from delegraph_onnx.node_facts import rank_of, shape_of

# ---- calibrated ---------------------------------------------------------------------------------------------------


@integers_for("linear")
def linear(g: CpuGraph, node: Node, input: Node, weight: Node, bias: Node | None) -> Integers | ir.Value | None:
    if rank_of(weight) == 1:
        return None
    taken, factors = activation(g, input), constant_weight(g, weight, 0)
    if taken is not None and factors is not None:
        return _gemm(g, node, *taken, factors, bias)
    return _dynamic_linear(g, input, factors, bias) or float_linear(g, input, weight, bias)


def _gemm(
    g: CpuGraph, node: Node, x: Integers, grid: Affine, weight: Weight, bias: Node | None
) -> Integers | ir.Value | None:
    """QGemm, of matrices: other dims are rows."""
    biased, result_grid, rest = weight.with_bias(g, bias, grid.scale), g.wanted.get(node), None
    if biased is None:
        biased, rest = (weight.inputs, None), bias_value(g, bias)
        if rest is None or result_grid is not None:
            return None
    (inputs, steps), output = biased, () if result_grid is None else result_grid.inputs(g)
    rows = g.reshape(x.value, [-1, weight.shape[1]]) if rank_of(node) != 2 else x.value
    result = g.op("QGemm", rows, *x.inputs(g), *inputs, steps, *output, domain=CONTRIB, transB=1)
    if rank_of(node) != 2:
        rows = g.record(result, [-1, weight.shape[0]])
        result = g.reshape(rows, shape_of(node), lambda: g.sizes_but_last(x.value, int(shape_of(node)[-1])))
    if result_grid is not None:
        return Integers.on(result, result_grid)
    return result if rest is None else g.op("Add", result, rest)


@integers_for("addmm")
def addmm(
    g: CpuGraph, node: Node, self: Node, mat1: Node, mat2: Node, beta: Scalar, alpha: Scalar
) -> Integers | ir.Value | None:
    taken, factors = activation(g, mat1), constant_weight(g, mat2, 1)
    if taken is None or factors is None or (alpha, beta) != (1, 1) or rank_of(self) != 1:
        return None
    (x, grid), result_grid = taken, g.wanted.get(node)
    biased = factors.with_bias(g, self, grid.scale)
    if biased is None:
        return None
    (inputs, steps), output = biased, () if result_grid is None else result_grid.inputs(g)
    result = g.op("QGemm", x.value, *x.inputs(g), *inputs, steps, *output, domain=CONTRIB)
    return result if result_grid is None else Integers.on(result, result_grid)


@integers_for("mm bmm matmul")
def matmul(g: CpuGraph, node: Node, self: Node, other: Node) -> Integers | ir.Value | None:
    """The product of two quantized values, or of one and a weight with scales by column."""
    left, right = activation(g, self), _right(g, other)
    if left is None or right is None or rank_of(self) < 2:
        return None
    x, grid = left[0], g.wanted.get(node)
    if grid is None:
        (a, a_zero), (values, b, b_zero) = x.inputs(g), right
        return g.op("MatMulIntegerToFloat", x.value, values, a, b, a_zero, b_zero, domain=CONTRIB)
    return Integers.on(g.op("QLinearMatMul", x.value, *x.inputs(g), *right, *grid.inputs(g)), grid)


def _right(g: CpuGraph, operand: Node) -> tuple[ir.Value, ir.Value, ir.Value] | None:
    source = activation(g, operand)
    if source is not None and rank_of(operand) >= 2:
        integers, grid = source
        if not _is_narrow(grid):
            return integers.value, *integers.inputs(g)
        zero_point = g.constant(np.array(grid.zero_point - _MIDDLE, np.int8))
        return shifted(g, integers.value, torch.int8), g.constant(integers.scale), zero_point
    weight = constant_weight(g, operand, 1) if rank_of(operand) == 2 else None
    return None if weight is None else weight.inputs


def _is_narrow(grid: Affine) -> bool:
    """Whether no two products of bytes with these integers, as int8, exceed 16 bits, in which processors without VNNI
    add them: with uint8 onnxruntime's kernels take 1.5 times as long (8 heads of 64 on 512 rows 5.2 ms, 3.3 so)."""
    return grid.low >= _MIDDLE - 64 and grid.high <= _MIDDLE + 64


_MIDDLE: Final = 128
"""The stored integer of torch's 0."""


# ---- quantized at run time ----------------------------------------------------------------------------------------


def _dynamic_linear(g: CpuGraph, input: Node, weight: Weight | None, bias: Node | None) -> ir.Value | None:
    """onnxruntime chooses torch's scale and zero point, but for a scale below torch's `eps`, where it is finer."""
    value, added = chosen_as_it_comes(input), bias_value(g, bias)
    if value is None or weight is None or (bias is not None and added is None):
        return None
    x, (_, scale, zero_point) = g.tensor(value, torch.float32), weight.inputs
    return g.op("DynamicQuantizeMatMul", x, _columns(g, weight), scale, zero_point, added, domain=CONTRIB)


def _columns(g: CpuGraph, weight: Weight) -> ir.Value:
    rows = weight.inputs[0]
    if isinstance(weight, KnownWeight):
        return g.weight(rows.name or "weight", weight.content.T)
    return g.op("Transpose", rows, perm=[1, 0])
