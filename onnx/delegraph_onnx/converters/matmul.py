"""Matrix products."""

from __future__ import annotations

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.reductions import reduce_integers
from delegraph_onnx.converters.table import convert_with
from delegraph_onnx.dtypes import INDICES, NUMBERS, REALS
from delegraph_onnx.graph_builder import GraphBuilder, Scalar
from delegraph_onnx.node_facts import dtype_of, rank_of, shape_of


@convert_with("linear", dtypes=REALS, keep=True)
def linear(g: GraphBuilder, node: Node, input: Node, weight: Node, bias: Node | None) -> ir.Value:
    """Gemm for a matrix; for more dims MatMul and Add, which onnxruntime's transformer fusions match, or Gemm of the
    rows."""
    if rank_of(weight) == 2 and (rank_of(input) == 2 or (rank_of(input) > 2 and g.target.linear_by_rows)):
        rows = g.value(input) if rank_of(input) == 2 else g.reshape(g.value(input), [-1, shape_of(weight)[1]])
        product = g.op("Gemm", rows, g.value(weight), None if bias is None else g.value(bias), transB=1)
        return product if rank_of(input) == 2 else g.reshape(product, shape_of(node))
    product = g.op("MatMul", g.value(input), _transposed(g, weight))
    return product if bias is None else g.op("Add", product, g.value(bias))


def _transposed(g: GraphBuilder, weight: Node) -> ir.Value:
    """The columns of a weight; one that is a vector is its own."""
    known = g.transposed_parameter(weight)
    if known is not None:
        return known
    return g.value(weight) if rank_of(weight) == 1 else g.transpose(g.value(weight), [1, 0])


@convert_with("mm bmm matmul dot mv", dtypes=NUMBERS, keep=True)
def matmul(g: GraphBuilder, node: Node, self: Node, other: Node) -> ir.Value:
    return g.op("MatMul", g.value(self), g.value(other))


@convert_with("addmm", dtypes=NUMBERS, keep=True)
def addmm(g: GraphBuilder, node: Node, self: Node, mat1: Node, mat2: Node, beta: Scalar, alpha: Scalar) -> ir.Value:
    # Gemm takes no integers, and factors of 32 bits
    if dtype_of(node) in INDICES or (dtype_of(node) == torch.float64 and (alpha, beta) != (1, 1)):
        return _sum(g, node, self, g.op("MatMul", g.value(mat1), g.value(mat2)), beta, alpha)
    added = g.value(self) if beta else None
    return g.op("Gemm", g.value(mat1), g.value(mat2), added, alpha=float(alpha), beta=float(beta))


@convert_with("baddbmm addmv", dtypes=NUMBERS, keep=True)
def baddbmm(g: GraphBuilder, node: Node, self: Node, mat1: Node, mat2: Node, beta: Scalar, alpha: Scalar) -> ir.Value:
    return _sum(g, node, self, g.op("MatMul", g.value(mat1), g.value(mat2)), beta, alpha)


@convert_with("addbmm", dtypes=NUMBERS, keep=True)
def addbmm(g: GraphBuilder, node: Node, self: Node, mat1: Node, mat2: Node, beta: Scalar, alpha: Scalar) -> ir.Value:
    products = g.op("MatMul", g.value(mat1), g.value(mat2))
    if (dtype := dtype_of(node)) in INDICES:
        total = reduce_integers(g, "ReduceSum", products, dtype, shape_of(mat1), [0], keepdim=False)
    else:
        total = g.op("ReduceSum", products, g.ints([0]), keepdims=0)
    return _sum(g, node, self, total, beta, alpha)


def _sum(g: GraphBuilder, node: Node, self: Node, product: ir.Value, beta: Scalar, alpha: Scalar) -> ir.Value:
    """beta * self + alpha * product; where beta is 0, torch does not read `self`, which may hold NaN."""
    if alpha != 1:
        product = g.op("Mul", product, g.tensor(alpha, dtype_of(node)))
    if not beta:
        return product
    added = g.value(self)
    if beta != 1:
        added = g.op("Mul", added, g.tensor(beta, dtype_of(node)))
    return g.op("Add", product, added)
