"""Distances between rows."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_onnx.converters.not_a_number import extreme
from delegraph_onnx.converters.table import convert_with
from delegraph_onnx.dtypes import REALS
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.node_facts import dtype_of, rank_of, shape_of


@convert_with("_cdist_forward", dtypes=REALS)
def cdist(g: GraphBuilder, node: Node, x1: Node, x2: Node, p: float, _mode: object) -> ir.Value:
    rows, columns = g.op("Unsqueeze", g.value(x1), g.ints([-2])), g.op("Unsqueeze", g.value(x2), g.ints([-3]))
    return _norm(g, g.op("Abs", g.op("Sub", rows, columns)), p, dtype_of(node), rank_of(node))


@convert_with("_pdist_forward", dtypes=REALS, check=lambda node, self, p: (
    None if isinstance(shape_of(self)[0], int) else "the number of rows is dynamic"))  # fmt: skip
def pdist(g: GraphBuilder, node: Node, self: Node, p: float) -> ir.Value:
    first, second = np.triu_indices(int(shape_of(self)[0]), 1)
    value = g.value(self)
    a, b = (g.op("Gather", value, g.constant(index), axis=0) for index in (first, second))
    return _norm(g, g.op("Abs", g.op("Sub", a, b)), p, dtype_of(node), 1)


def _norm(g: GraphBuilder, distance: ir.Value, p: float, dtype: torch.dtype, axis: int) -> ir.Value:
    """The norm of order `p` over the last dim, which is `axis`."""
    if p == math.inf:
        return extreme(g, "Max", distance, dtype, [axis], keepdim=False)
    if p == 0:
        distance, p = g.op("Sign", distance), 1  # keeps NaN
    if p in (1, 2):
        return g.op(f"ReduceL{int(p)}", distance, g.ints([axis]), keepdims=0)
    total = g.op("ReduceSum", g.op("Pow", distance, g.tensor(p, dtype)), g.ints([axis]), keepdims=0)
    return g.op("Pow", total, g.tensor(1 / p, dtype))
