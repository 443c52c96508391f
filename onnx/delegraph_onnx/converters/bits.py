"""Shifts of integers, and operators that change a float's sign or exponent."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.extremes import limited
from delegraph_onnx.converters.pointwise import is_negative
from delegraph_onnx.converters.table import convert_with
from delegraph_onnx.dtypes import FLOATS, INDICES, NUMBERS
from delegraph_onnx.graph_builder import GraphBuilder, TensorLike
from delegraph_onnx.node_facts import dtype_of, outer_dtype_of

INT64 = torch.int64

# ---- shifts: ONNX has none of signed integers ---------------------------------------------------------------------


@convert_with(
    """bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar bitwise_left_shift.Scalar_Tensor
    __lshift__.Tensor __lshift__.Scalar""",
    dtypes=INDICES,
)
def left_shift(g: GraphBuilder, node: Node, self: TensorLike, other: TensorLike) -> ir.Value:
    """The product with a power of 2, whose highest bits are lost; 0 for a shift by all bits or more."""
    product = g.op("Mul", _wide(g, node, self), _power_of_2(g, node, other))
    return g.cast(product, dtype_of(node))


@convert_with(
    """bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar bitwise_right_shift.Scalar_Tensor
    __rshift__.Tensor __rshift__.Scalar""",
    dtypes=INDICES,
)
def right_shift(g: GraphBuilder, node: Node, self: TensorLike, other: TensorLike) -> ir.Value:
    """The quotient by a power of 2, rounded down, in two divisions, by 1 bit and by the others: 2 ** 63 is no int64."""
    value, dtype = _wide(g, node, self), outer_dtype_of(node)
    last = torch.iinfo(dtype).bits - 1
    shift = _wide(g, node, other)
    outside = g.op("Or", g.op("Less", shift, g.tensor(0, INT64)), g.op("Greater", shift, g.tensor(last, INT64)))
    shift = g.op("Where", outside, g.tensor(last, INT64), shift)
    first_bit = g.op("Min", shift, g.tensor(1, INT64))
    for part in (first_bit, g.op("Sub", shift, first_bit)):
        power = g.op("Gather", g.constant(_POWERS), part)
        value = g.op("Div", g.op("Sub", value, g.op("Mod", value, power)), power)
    return g.cast(value, dtype_of(node))


def _wide(g: GraphBuilder, node: Node, operand: TensorLike) -> ir.Value:
    """`operand` in int64; a number is cast to the dtype of `node` first."""
    value = g.tensor(operand, dtype_of(node))
    return value if dtype_of(node) == INT64 else g.cast(value, INT64)


_POWERS = np.array([1 << n for n in range(63)], np.int64)


def _power_of_2(g: GraphBuilder, node: Node, shift: TensorLike) -> ir.Value:
    """2 ** shift in int64, and 0 where the dtype of `node` does not have as many bits."""
    bits = torch.iinfo(outer_dtype_of(node)).bits
    powers = [np.int64(-(2**63)) if n == 63 else np.int64(1 << n) for n in range(bits)]
    places = g.op("Add", _wide(g, node, shift), g.tensor(1, INT64))
    within = limited(g, places, g.tensor(0, INT64), g.tensor(bits + 1, INT64), INT64)
    return g.op("Gather", g.constant(np.array([0, *powers, 0], np.int64)), within)


# ---- floats -------------------------------------------------------------------------------------------------------


@convert_with("ldexp.Tensor", dtypes=NUMBERS)
def ldexp(g: GraphBuilder, node: Node, self: Node, other: Node) -> ir.Value:
    dtype = dtype_of(node)
    return g.op("Mul", g.tensor(self, dtype), g.op("Pow", g.tensor(2.0, dtype), g.tensor(other, dtype)))


@convert_with("copysign.Tensor copysign.Scalar", dtypes=NUMBERS, check=lambda node, *_: (
    None if dtype_of(node) in FLOATS else "in double"))  # fmt: skip
def copysign(g: GraphBuilder, node: Node, self: Node, other: TensorLike) -> ir.Value:
    """The sign of a zero counts. ONNX does not tell the sign of NaN: it is taken for plus."""
    dtype = dtype_of(node)
    size = g.op("Abs", g.tensor(self, dtype))
    return g.op("Where", is_negative(g, g.tensor(other, dtype), dtype), g.op("Neg", size), size)
