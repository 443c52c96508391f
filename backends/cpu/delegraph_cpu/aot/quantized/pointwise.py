"""Sums, products, activations and concatenations of uint8, on the grid of the result."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
from torch.fx import Node

from delegraph_cpu.aot.graph import CONTRIB
from delegraph_cpu.aot.quantized.moves import moved
from delegraph_cpu.aot.quantized.table import OnIntegers, activation, integers_for
from delegraph_onnx.converters.table import name_of
from delegraph_onnx.graph_builder import GraphBuilder, Scalar
from delegraph_onnx.integers import Integers
from delegraph_onnx.node_facts import rank_of

__all__ = ["unary"]

_CODES = 255
"""The largest difference of two uint8."""


@integers_for("add.Tensor mul.Tensor")
def binary(g: GraphBuilder, node: Node, self: Node, other: Node, alpha: Scalar = 1) -> Integers | None:
    left, right, grid = activation(g, self), activation(g, other), g.wanted.get(node)
    if left is None or right is None or grid is None or alpha != 1:
        return None
    (a, on_a), (b, on_b) = left, right
    inputs = (a.value, *a.inputs(g), b.value, *b.inputs(g), *grid.inputs(g))
    is_sum = name_of(node) == "add"
    largest = (on_a.scale + on_b.scale) * _CODES if is_sum else on_a.scale * on_b.scale * _CODES**2
    if largest >= grid.scale * 2**31:  # an integer before it is clamped: a grid far finer than the values
        return None
    op_type = "QLinearAdd" if is_sum else "QLinearMul"
    return Integers.on(g.op(op_type, *inputs, domain=CONTRIB), grid)


@integers_for("cat concat", commutes=True)
def cat(g: GraphBuilder, node: Node, tensors: Sequence[Node], dim: int) -> OnIntegers:
    """A concatenation on one grid needs no arithmetic."""
    joined = moved(g, node)
    if joined is not None:
        return joined
    operands, grid = [activation(g, tensor) for tensor in tensors], g.wanted.get(node)
    if grid is None or not all(operands):
        return None
    parts = [part for operand in operands if operand for part in (operand[0].value, *operand[0].inputs(g))]
    result = g.op("QLinearConcat", *grid.inputs(g), *parts, domain=CONTRIB, axis=dim % rank_of(node))
    return Integers.on(result, grid)


@integers_for("sigmoid")
def sigmoid(g: GraphBuilder, node: Node, self: Node) -> Integers | None:
    return unary(g, node, self, "QLinearSigmoid")


@integers_for("leaky_relu")
def leaky_relu(g: GraphBuilder, node: Node, self: Node, negative_slope: Scalar) -> Integers | None:
    return unary(g, node, self, "QLinearLeakyRelu", alpha=float(negative_slope))


def unary(g: GraphBuilder, node: Node, self: Node, op_type: str, **attributes: float) -> Integers | None:
    """An operator of one value, by the name of onnxruntime's kernel."""
    taken, grid = activation(g, self), g.wanted.get(node)
    if taken is None or grid is None:
        return None
    x, _ = taken
    result: ir.Value = g.op(op_type, x.value, *x.inputs(g), *grid.inputs(g), domain=CONTRIB, **attributes)
    return Integers.on(result, grid)
