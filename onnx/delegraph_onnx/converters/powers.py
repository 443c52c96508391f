"""Powers: of floats onnxruntime's; of integers products, which wrap as torch's do.

    x ** 6     (x x x) (x x x)
    x ** n     Loop while a bit of n is left:  power = power * factor where the lowest bit is set;  factor = factor²

onnxruntime's Pow computes integers in double, which rounds them from 2 ** 53 on.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.table import convert_with
from delegraph_onnx.dtypes import INDICES, NUMBERS
from delegraph_onnx.graph_builder import GraphBuilder, Scalar, TensorLike
from delegraph_onnx.node_facts import dtype_of, inner_shape_of, outer_dtype_of

__all__ = ["power_of_integers"]


@convert_with("pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar", dtypes=NUMBERS)
def pow_(g: GraphBuilder, node: Node, self: Node | Scalar, exponent: Node | Scalar) -> ir.Value:
    dtype = dtype_of(node)
    if dtype in INDICES:
        return power_of_integers(g, node, self, exponent)
    base, known = g.operand(self, outer_dtype_of(node)), g.number(exponent)
    if known in (1, 2):
        return base if known == 1 else g.op("Mul", base, base)
    if known == 0.5:
        return g.op("Sqrt", base)
    if known == -0.5 and outer_dtype_of(node) != torch.float16:  # torch: the reciprocal root, but for float16
        return g.op("Reciprocal", g.op("Sqrt", base))
    return g.op("Pow", base, g.operand(exponent, outer_dtype_of(node)))


def power_of_integers(g: GraphBuilder, node: Node, base: TensorLike, exponent: TensorLike) -> ir.Value:
    """`base ** exponent` in the integers of `node`."""
    dtype = dtype_of(node)
    factor, known = g.tensor(base, dtype), g.number(exponent)
    if isinstance(known, int) and known > 0:
        return _multiplied(g, factor, known)
    return _multiplied_in_the_run(g, node, factor, g.tensor(exponent, dtype))


def _multiplied(g: GraphBuilder, base: ir.Value, exponent: int) -> ir.Value:
    """A product by squares: x^6 = (x^3)^2."""
    if exponent == 1:
        return base
    half = _multiplied(g, base, exponent // 2)
    square = g.op("Mul", half, half)
    return g.op("Mul", square, base) if exponent % 2 else square


def _multiplied_in_the_run(g: GraphBuilder, node: Node, base: ir.Value, exponent: ir.Value) -> ir.Value:
    """A product by squares, as many as the largest exponent has bits. A negative exponent gives 1 / base rounded
    towards 0 in torch: for 1 and -1 the lowest bit decides, else it is 0."""
    dtype, shape = dtype_of(node), inner_shape_of(node)
    zero, unit, two = (g.tensor(number, dtype) for number in (0, 1, 2))

    def some_left(exponent: ir.Value) -> ir.Value:
        left = g.cast(g.op("Greater", exponent, zero), torch.int32)
        return g.cast(g.op("ReduceMax", left, keepdims=0), torch.bool)

    def one_round() -> Sequence[ir.Value]:
        odd = g.op("Equal", g.op("BitwiseAnd", bits, unit), unit)
        rest = g.op("Div", bits, two)
        product = g.op("Where", odd, g.op("Mul", power, factor), power)
        return [some_left(rest), product, g.op("Mul", factor, factor), rest]

    negative = g.op("Less", exponent, zero)
    first_bits = g.op("Where", negative, g.op("BitwiseAnd", exponent, unit), exponent)
    ones = g.op("Add", g.op("Mul", base, zero), g.op("Add", g.op("Mul", first_bits, zero), unit))
    state = [ones, g.op("Mul", base, ones), g.op("Mul", first_bits, ones)]
    if g.target.loops:
        power, factor, bits = now = [g.input("carried", dtype, shape) for _ in state]
        body = g.subgraph(one_round, [g.input("round", torch.int64, []), g.input("going", torch.bool, []), *now])
        result = g.ops("Loop", len(state), None, some_left(first_bits), *state, body=body)[0]
    else:
        result = _multiplied_for_each_bit(g, dtype, *state)
    fraction = g.op("And", negative, g.op("Not", g.op("Equal", g.op("Abs", base), unit)))
    return g.op("Where", fraction, zero, result)


def _multiplied_for_each_bit(
    g: GraphBuilder, dtype: torch.dtype, power: ir.Value, factor: ir.Value, exponent: ir.Value
) -> ir.Value:
    """As many squares as an exponent can have bits."""
    for bit in range(torch.iinfo(dtype).bits - 1):
        without = g.op("Equal", g.op("BitwiseAnd", exponent, g.tensor(1 << bit, dtype)), g.tensor(0, dtype))
        power = g.op("Where", without, power, g.op("Mul", power, factor))
        factor = g.op("Mul", factor, factor)
    return power
