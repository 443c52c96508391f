"""Matrix products -> OpenVINO."""

from __future__ import annotations

from typing import Any

import torch
from openvino import Output
from torch.fx import Node

from delegraph.aot.authoring import Quantizations
from delegraph_openvino.aot.converters.found_in_the_run import found_rounding
from delegraph_openvino.aot.converters.quantized import rounding
from delegraph_openvino.aot.graph_builder import GraphBuilder, Operand, dtype_of, shape_of
from delegraph_openvino.aot.rounded_values import bias_of
from delegraph_openvino.aot.table import converts


@converts("mm.default", "bmm.default", "matmul.default", "mv.default", "dot.default", keep=True)
def product(g: GraphBuilder, node: Node, x: Node, y: Node) -> Output:
    return g.op("matmul", x, y, transpose_a=False, transpose_b=False)


@converts("linear.default", keep=True)
def linear(g: GraphBuilder, node: Node, x: Node, weight: Node, bias: Node | None) -> Output:
    rows = _multiplied(g, x, weight)
    is_vector = len(shape_of(x)) == 1
    if is_vector:
        rows = g.op("unsqueeze", rows, g.vector([0]))  # OpenVINO's products of integers give a row anyway
    result = g.op("matmul", rows, weight, transpose_a=False, transpose_b=True)
    added = bias_of(g, x, weight, bias, shape_of(weight)[0])
    if added is not None:
        result = g.op("add", result, added)
    return g.op("squeeze", result, g.vector([0])) if is_vector else result


def _multiplied(g: GraphBuilder, x: Node, weight: Node) -> Operand:
    """`x`; or, if it is rounded to 8 bits in the run, what is rounded: OpenVINO rounds in front of a product with a
    weight that is dequantized, by groups of 32 and not all of it with one scale."""
    known = weight in g.packed or Quantizations(g.constants).weight(weight) is not None
    if not known or rounding(x) is not None:
        return x
    source = found_rounding(x)
    g.rounded, g.exact = g.rounded + (source is not None), g.exact + (source is None)
    return x if source is None else source


@converts("addmm.default", "baddbmm.default", keep=True)
def addmm(g: GraphBuilder, node: Node, bias: Node, x: Node, y: Node, beta: Any, alpha: Any) -> Output:
    dtype = torch.float32 if (alpha, beta) != (1, 1) else dtype_of(node)  # what is added is not rounded before
    result = g.op("matmul", g.cast(x, dtype), g.cast(y, dtype), transpose_a=False, transpose_b=False)
    if alpha != 1:
        result = g.op("multiply", result, alpha, dtype=dtype)
    if beta != 0:
        added = g.cast(bias, dtype)
        result = g.op("add", result, added if beta == 1 else g.op("multiply", added, beta, dtype=dtype))
    return g.cast(result, dtype_of(node))
