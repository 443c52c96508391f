"""Sigmoid, written out where it matters how small a small result is.

    x ── Neg ── Exp ── Add 1 ── Reciprocal        instead of        x ── Sigmoid

onnxruntime's own is 0 from about -18 on, and loses digits before that. A factor (a gate) does not mind, and stays what
onnxruntime fuses; a logarithm would be -inf.
"""

from __future__ import annotations

import operator
from typing import Final

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters import indexing, shapes
from delegraph_onnx.converters.table import TABLE, aten, convert_with, schema_arguments
from delegraph_onnx.copies import COPIES
from delegraph_onnx.dtypes import REALS
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.node_facts import dtype_of


@convert_with("sigmoid", dtypes=REALS)
def sigmoid(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    return sigmoid_of(g, g.tensor(self, dtype_of(node)), dtype_of(node), _is_read_closely(node, is_product=False))


@convert_with("silu", keep=True)
def silu(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    value = g.value(self)
    closely = _is_read_closely(node, is_product=True)
    return g.op("Mul", value, sigmoid_of(g, value, dtype_of(node), closely))


def sigmoid_of(g: GraphBuilder, value: ir.Value, dtype: torch.dtype, closely: bool) -> ir.Value:
    """Written out where it is read closely; of float64 always."""
    if dtype != torch.float64 and not closely:
        return g.op("Sigmoid", value)
    return g.op("Reciprocal", g.op("Add", g.op("Exp", g.op("Neg", value)), g.tensor(1.0, dtype)))


def _is_read_closely(node: Node, is_product: bool) -> bool:
    """Whether small values of `node` are told apart: by who reads it, or reads what has them as well. Who gets a
    product with it, as a result, does not mind."""
    todo, seen = [(node, is_product)], {(node, is_product)}
    while todo:
        value, is_product = todo.pop()
        if any(_reads_closely(reader, value) or (reader.op == "output" and not is_product) for reader in value.users):
            return True
        further = {(r, is_product) for r in value.users if _has_small_values_of_operands(r)}
        further |= {(reader, True) for reader in value.users if reader.target in _PRODUCTS}
        todo.extend(further - seen)
        seen |= further
    return False


def _reads_closely(reader: Node, value: Node) -> bool:
    if reader.target in _DIVISIONS:
        return schema_arguments(reader)[1] is value
    if reader.target in _POWERS:
        base, exponent = schema_arguments(reader)
        return base is value and (isinstance(exponent, Node) or exponent < 0)
    return reader.target in _CLOSE


def _has_small_values_of_operands(node: Node) -> bool:
    if node.target in _NEARLY_ALIKE or node.target is operator.getitem:
        return True
    row = TABLE.row(node)
    return row is not None and row.convert.__module__ in _MOVING


_CLOSE: Final = frozenset(map(aten, ["log", "log2", "log10", "log1p", "logit", "reciprocal", "rsqrt"]))
_DIVISIONS: Final = frozenset(map(aten, ["div.Tensor", "div.Tensor_mode", "true_divide.Tensor", "floor_divide"]))
_PRODUCTS: Final = frozenset(map(aten, ["mul.Tensor", "mul.Scalar"]))
_POWERS: Final = frozenset(map(aten, ["pow.Tensor_Scalar", "pow.Tensor_Tensor"]))

_MOVING: Final = (indexing.__name__, shapes.__name__)
"""The families of operators that move elements: views, parts, joins, repetitions."""

_NEARLY: Final = ("neg", "add.Tensor", "add.Scalar", "clamp", "clamp.Tensor", "maximum", "minimum", "where.self")
_NEARLY_ALIKE: Final = COPIES | _DIVISIONS | frozenset(map(aten, _NEARLY))
"""Copies, and what changes a value's sign or keeps it from being 0; a dividend."""
