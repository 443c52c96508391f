"""Sigmoid, written out where its small results must be exact.

    x ── Neg ── Exp ── Add 1 ── Reciprocal        instead of        x ── Sigmoid

onnxruntime's own is 0 from about -18 on, and loses digits before that. For a factor (a gate) that makes no difference,
and Sigmoid stays, which onnxruntime fuses; a logarithm would be -inf.
"""

from __future__ import annotations

import operator
from typing import Final

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters import indexing, shapes
from delegraph_onnx.converters.table import TABLE, aten, convert_with, schema_arguments
from delegraph_onnx.dtypes import REALS
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.node_facts import COPIES, dtype_of


@convert_with("sigmoid", dtypes=REALS)
def sigmoid(g: GraphBuilder, node: Node, self: Node) -> ir.Value:
    value = g.tensor(self, dtype_of(node))
    if dtype_of(node) == torch.float32 and not _is_read_closely(node):
        return g.op("Sigmoid", value)
    power = g.op("Exp", g.op("Neg", value))
    return g.op("Reciprocal", g.op("Add", power, g.tensor(1.0, dtype_of(node))))


def _is_read_closely(node: Node) -> bool:
    """Whether the small values of `node` matter: a reader, or a reader of nearly the same values, takes a logarithm or
    divides. The readers of a product, where it is a gate, only count if they do so themselves."""
    todo, alike = [(node, False)], {node}
    while todo:
        value, multiplied = todo.pop()
        if any(_reads_closely(reader, value) for reader in value.users if not (multiplied and reader.op == "output")):
            return True
        for reader in value.users.keys() - alike:
            if _has_small_values_of_operands(reader) or reader.target in _PRODUCTS:
                alike.add(reader)
                todo.append((reader, multiplied or reader.target in _PRODUCTS))
    return False


def _reads_closely(reader: Node, value: Node) -> bool:
    if reader.target in _DIVISIONS:
        return schema_arguments(reader)[1] is value
    if reader.target in _POWERS:
        base, exponent = schema_arguments(reader)
        return base is value and (isinstance(exponent, Node) or exponent < 0)
    return reader.op == "output" or reader.target in _CLOSE


def _has_small_values_of_operands(node: Node) -> bool:
    if node.target in _NEARLY_ALIKE or node.target is operator.getitem:
        return True
    row = TABLE.row(node)
    return row is not None and row.convert.__module__ in _MOVING


_PRODUCTS: Final = frozenset(map(aten, ["mul.Tensor", "mul.Scalar"]))
_CLOSE: Final = frozenset(map(aten, ["log", "log2", "log10", "log1p", "logit", "reciprocal", "rsqrt"]))
_DIVISIONS: Final = frozenset(map(aten, ["div.Tensor", "div.Tensor_mode", "true_divide.Tensor", "floor_divide"]))
_POWERS: Final = frozenset(map(aten, ["pow.Tensor_Scalar", "pow.Tensor_Tensor"]))

_MOVING: Final = (indexing.__name__, shapes.__name__)
"""The families of operators that move elements: views, parts, joins, repetitions."""

_NEARLY: Final = ("neg", "add.Tensor", "add.Scalar", "clamp", "clamp.Tensor", "maximum", "minimum", "where.self")
_NEARLY_ALIKE: Final = COPIES | _DIVISIONS | frozenset(map(aten, _NEARLY))
"""Copies, and operators that change a value's sign or keep it from being 0; a dividend."""
