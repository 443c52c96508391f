"""Rounded quotients and remainders: torch's floor, of integers also at the limits of their dtypes."""

from __future__ import annotations

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.extremes import sign_of
from delegraph_onnx.converters.pointwise import truncated
from delegraph_onnx.converters.table import convert_with
from delegraph_onnx.dtypes import INDICES, NUMBERS
from delegraph_onnx.graph_builder import GraphBuilder, Scalar, TensorLike
from delegraph_onnx.node_facts import dtype_of, outer_dtype_of

__all__ = ["floor_of_integers"]


@convert_with("div.Tensor_mode div.Scalar_mode", dtypes=NUMBERS)
def div_mode(g: GraphBuilder, node: Node, self: TensorLike, other: TensorLike, rounding_mode: str | None) -> ir.Value:
    dtype = dtype_of(node)
    if rounding_mode == "floor":
        return floor_divide(g, node, self, other)
    a, b = g.tensor(self, dtype), g.tensor(other, dtype)
    if dtype in INDICES:  # ONNX: integers are divided towards zero
        return g.op("Div", *_divisible(g, a, b, dtype))
    quotient = g.op("Div", a, b)
    return quotient if rounding_mode is None else truncated(g, quotient, dtype)


@convert_with("floor_divide", dtypes=NUMBERS)
def floor_divide(g: GraphBuilder, node: Node, self: TensorLike, other: TensorLike) -> ir.Value:
    dtype = dtype_of(node)
    a, b = g.tensor(self, dtype), g.tensor(other, dtype)
    if dtype in INDICES:
        return floor_of_integers(g, *_divisible(g, a, b, dtype), dtype)
    # As Python and torch: a - fmod(a, b) is a multiple of b too, so that rounding its quotient corrects the last bit
    # only; where fmod's sign is not the divisor's, the floor is one below. (floor(1 / 0.1) is 10, but 1 // 0.1 is 9.)
    zero = g.tensor(0.0, dtype)
    rest = g.op("Mod", a, b, fmod=1)
    exact = g.op("Round", g.op("Div", g.op("Sub", a, rest), b))
    floor = g.op("Where", _other_sign(g, rest, b, dtype), g.op("Sub", exact, g.tensor(1.0, dtype)), exact)
    return g.op("Where", g.op("Equal", b, zero), g.op("Div", a, b), floor)


def floor_of_integers(g: GraphBuilder, a: ir.Value, b: ir.Value, dtype: torch.dtype) -> ir.Value:
    """The quotient towards zero, or one less where that is above the floor: no step leaves the dtype. No `b` is -1."""
    quotient = g.op("Div", a, b)
    multiple = g.op("Mul", quotient, b)
    if b.const_value is not None and bool((b.const_value.numpy() > 0).all()):
        above = g.op("Less", a, multiple)
    else:
        above = _other_sign(g, g.op("Sub", a, multiple), b, dtype)
    return g.op("Sub", quotient, g.cast(above, dtype))


def _divisible(g: GraphBuilder, a: ir.Value, b: ir.Value, dtype: torch.dtype) -> tuple[ir.Value, ir.Value]:
    """Integers with the same quotient and remainder, the second never -1: x86 ends the process when the lowest integer
    is divided by -1, and torch's result is the integer itself."""
    b = _known_in_the_run(g, a, b)
    if b.const_value is not None and not bool((b.const_value.numpy() == -1).any()):
        return a, b
    turned = g.op("Equal", b, g.tensor(-1, dtype))
    return g.op("Where", turned, g.op("Neg", a), a), g.op("Where", turned, g.tensor(1, dtype), b)


def _known_in_the_run(g: GraphBuilder, a: ir.Value, b: ir.Value) -> ir.Value:
    """`b`, made to depend on the run if it is made of constants and may be 0: onnxruntime refuses a graph that divides
    by a constant 0, and torch fails only when it divides."""
    if not _is_constant(b) or (b.const_value is not None and bool(b.const_value.numpy().all())):
        return b
    return g.op("Where", g.op("Equal", a, a), b, b)


def _is_constant(value: ir.Value) -> bool:
    """Whether `value` depends on no input of the graph."""
    seen, ahead = set[ir.Node](), [value]
    while ahead:
        source = ahead.pop()
        producer = source.producer()
        if producer is None and source.const_value is None:
            return False
        if producer is not None and producer not in seen:
            seen.add(producer)
            ahead += [operand for operand in producer.inputs if operand is not None]
    return True


def _other_sign(g: GraphBuilder, a: ir.Value, b: ir.Value, dtype: torch.dtype) -> ir.Value:
    """Where a and b have different signs."""
    return g.op("Less", g.op("Mul", sign_of(g, a, dtype), sign_of(g, b, dtype)), g.tensor(0, dtype))


@convert_with("remainder.Tensor remainder.Scalar remainder.Scalar_Tensor", dtypes=NUMBERS)
def remainder(g: GraphBuilder, node: Node, self: Node | Scalar, other: Node | Scalar) -> ir.Value:
    dtype = dtype_of(node)
    a, b = (g.operand(operand, outer_dtype_of(node)) for operand in (self, other))
    if dtype in INDICES:
        return g.op("Mod", *_divisible(g, a, b, dtype))
    rest = g.op("Mod", a, b, fmod=1)
    return g.op("Where", _other_sign(g, rest, b, dtype), g.op("Add", rest, b), rest)


@convert_with("fmod.Tensor fmod.Scalar", dtypes=NUMBERS)
def fmod(g: GraphBuilder, node: Node, self: Node | Scalar, other: Node | Scalar) -> ir.Value:
    dtype = dtype_of(node)
    a, b = (g.operand(operand, outer_dtype_of(node)) for operand in (self, other))
    if dtype not in INDICES:
        return g.op("Mod", a, b, fmod=1)
    if dtype == torch.int32:
        return g.op("Mod", a, _known_in_the_run(g, a, b), fmod=1)
    a, b = _divisible(g, a, b, dtype)  # onnxruntime computes fmod in double
    return g.op("Sub", a, g.op("Mul", g.op("Div", a, b), b))
