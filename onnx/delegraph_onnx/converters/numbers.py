"""Sizes, and other numbers that Python computes from them: int64, float64 and bool without dims.

    n = sym_size(x, 0);  m = n * 2;  view(y, [m, -1])        Shape(x) ── Mul ── Reshape

They are computed where they are needed, so that they neither cut a graph nor cross a delegate's border. One that is
needed outside as well is computed there once more: a delegate has only tensors as results.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Final

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.powers import power_of_integers
from delegraph_onnx.converters.table import convert_with, unless
from delegraph_onnx.dtypes import ALL, NUMBERS
from delegraph_onnx.graph_builder import GraphBuilder, TensorLike
from delegraph_onnx.node_facts import dtype_of, rank_of

# ---- from tensors -------------------------------------------------------------------------------------------------


@convert_with("sym_size.int", dtypes=ALL)
def sym_size(g: GraphBuilder, node: Node, self: Node, dim: int) -> ir.Value:
    return g.size(_same_shape(g.value(self)), dim % rank_of(self))


@convert_with("sym_numel", dtypes=ALL)
def sym_numel(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.op("Size", _same_shape(g.value(self)))


def _same_shape(value: ir.Value) -> ir.Value:
    """The source of `value` if only a cast lies between: the cast need not run for a size."""
    producer = value.producer()
    source = producer.inputs[0] if producer is not None and producer.op_type in _CASTS else None
    return value if source is None else _same_shape(source)


_CASTS: Final = ("Cast", "DequantizeLinear")


@convert_with("_local_scalar_dense", dtypes=NUMBERS | {torch.bool})
def item(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return g.reshape(g.tensor(self, dtype_of(node)), [])


# ---- arithmetic ---------------------------------------------------------------------------------------------------


def _dtype(arguments: Sequence[TensorLike]) -> torch.dtype:
    """The dtype in which Python computes with these operands: float64 if one is a float."""
    dtypes = [dtype_of(a) if isinstance(a, Node) else torch.tensor(a).dtype for a in arguments]
    return torch.float64 if any(dtype.is_floating_point for dtype in dtypes) else torch.int64


def _operands(g: GraphBuilder, arguments: Sequence[Any]) -> list[ir.Value]:
    dtype = _dtype(arguments)
    return [g.tensor(argument, dtype) for argument in arguments]


OPERATORS: Final[dict[Any, str]] = {
    operator.add: "Add",
    operator.sub: "Sub",
    operator.mul: "Mul",
    operator.neg: "Neg",
    operator.abs: "Abs",
    abs: "Abs",
    torch.sym_max: "Max",
    torch.sym_min: "Min",
    operator.eq: "Equal",
    operator.lt: "Less",
    operator.le: "LessOrEqual",
    operator.gt: "Greater",
    operator.ge: "GreaterOrEqual",
}
"""Operators of ONNX, on operands of the same dtype."""


@convert_with(OPERATORS)
def plain(g: GraphBuilder, node: Node, *arguments: Any) -> ir.Value:
    return g.op(OPERATORS[node.target], *_operands(g, arguments))


@convert_with([operator.ne])
def unequal(g: GraphBuilder, node: Node, a: Any, b: Any) -> ir.Value:
    return g.op("Not", g.op("Equal", *_operands(g, [a, b])))


@convert_with([torch.sym_sum])
def sym_sum(g: GraphBuilder, node: Node, terms: Sequence[Any]) -> ir.Value:
    return g.total(_operands(g, terms))


@convert_with([operator.truediv])
def quotient(g: GraphBuilder, node: Node, a: Any, b: Any) -> ir.Value:
    return g.op("Div", g.tensor(a, torch.float64), g.tensor(b, torch.float64))


_INTEGERS: Final = unless(lambda node, *operands: _dtype(operands) == torch.int64, "rounded division of floats")


@convert_with([operator.mod], check=_INTEGERS)
def remainder(g: GraphBuilder, node: Node, a: Any, b: Any) -> ir.Value:
    """ONNX's has the sign of the divisor, as Python's."""
    return g.op("Mod", *_operands(g, [a, b]))


@convert_with([operator.floordiv], check=_INTEGERS)
def floor_quotient(g: GraphBuilder, node: Node, a: Any, b: Any) -> ir.Value:
    """ONNX rounds towards zero: without the remainder, the division is exact."""
    dividend, divisor = _operands(g, [a, b])
    return g.op("Div", g.op("Sub", dividend, g.op("Mod", dividend, divisor)), divisor)


@convert_with([operator.pow])
def power(g: GraphBuilder, node: Node, base: Any, exponent: Any) -> ir.Value:
    dtype = dtype_of(node)
    if dtype == torch.int64:
        return power_of_integers(g, node, base, exponent)
    return g.op("Pow", g.tensor(base, dtype), g.tensor(exponent, dtype))


# ---- conversions and choices --------------------------------------------------------------------------------------


@convert_with([torch.sym_float, torch.sym_int, math.trunc])
def converted(g: GraphBuilder, node: Node, a: Any) -> ir.Value:
    """A cast to integers rounds towards zero, as Python's."""
    return g.tensor(a, dtype_of(node))


ROUNDINGS: Final[dict[Any, str]] = {math.floor: "Floor", math.ceil: "Ceil", round: "Round"}


@convert_with(ROUNDINGS, check=lambda node, a, digits=None: None if digits is None else "rounding to digits")
def rounded(g: GraphBuilder, node: Node, a: Any, digits: None = None) -> ir.Value:
    """Halves to even, in ONNX as in Python."""
    return g.cast(g.op(ROUNDINGS[node.target], g.tensor(a, torch.float64)), dtype_of(node))


LOGIC: Final[dict[Any, str]] = {operator.and_: "And", operator.or_: "Or", operator.not_: "Not", torch.sym_not: "Not"}


@convert_with(LOGIC, check=lambda node, *_: None if dtype_of(node) == torch.bool else "bits of integers")
def logical(g: GraphBuilder, node: Node, *arguments: Any) -> ir.Value:
    return g.op(LOGIC[node.target], *(g.tensor(argument, torch.bool) for argument in arguments))


@convert_with([torch.sym_ite])
def chosen(g: GraphBuilder, node: Node, condition: Any, yes: Any, no: Any) -> ir.Value:
    dtype = dtype_of(node)
    return g.op("Where", g.tensor(condition, torch.bool), g.tensor(yes, dtype), g.tensor(no, dtype))
