"""Sizes, and what Python computes from them: int64 without dims.

    n = sym_size(x, 0);  m = n * 2;  view(y, [m, -1])        ShapeOf(x) ── Gather ── Multiply ── Reshape

They are computed where they are needed, so that they neither cut a graph nor cross a delegate's border. One that is
needed outside as well is computed there once more: what a delegate gives are tensors.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any, Final

import torch
from openvino import Output
from torch.fx import Node

from delegraph.aot.authoring import Converter
from delegraph_openvino.aot.graph_builder import GraphBuilder, dtype_of, shape_of
from delegraph_openvino.aot.table import ALL, TABLE


@TABLE.converts(torch.ops.aten.sym_size.int, dtypes=ALL)
def sym_size(g: GraphBuilder, node: Node, self: Node, dim: int) -> Output:
    return g.op("gather", g.shape(self), g.axis(dim % len(shape_of(self))), g.axis(0))


@TABLE.converts(torch.ops.aten.sym_numel.default, dtypes=ALL)
def sym_numel(g: GraphBuilder, node: Node, self: Node) -> Output:
    return g.op("reduce_prod", g.shape(self), g.axis(0), keep_dims=False)


OPERATORS: Final[dict[Any, str]] = {
    operator.add: "add",
    operator.sub: "subtract",
    operator.mul: "multiply",
    operator.neg: "negative",
    operator.mod: "floor_mod",
    torch.sym_max: "maximum",
    torch.sym_min: "minimum",
}


def _integers(node: Node, *arguments: Any) -> str | None:
    """Whether all are int64; the rest of Python's arithmetic is left to the runtime."""
    values = [dtype_of(one) if isinstance(one, Node) else torch.tensor(one).dtype for one in (node, *arguments)]
    return None if set(values) == {torch.int64} else "arithmetic of other numbers than integers"


for _function, _name in OPERATORS.items():

    def _computed(g: GraphBuilder, node: Node, *arguments: Any, name: str = _name) -> Output:
        return g.op(name, *arguments, dtype=torch.int64)

    TABLE.add(_function, Converter(_computed, ALL, _integers))


@TABLE.converts(operator.floordiv, dtypes=ALL, check=_integers)
def floor_quotient(g: GraphBuilder, node: Node, a: Any, b: Any) -> Output:
    """The CPU device rounds towards zero: without the remainder, the division is exact."""
    rest = g.op("floor_mod", a, b, dtype=torch.int64)
    return g.op("divide", g.op("subtract", a, rest, dtype=torch.int64), b, dtype=torch.int64)


@TABLE.converts(torch.sym_sum, dtypes=ALL, check=lambda node, terms: _integers(node, *terms))
def sym_sum(g: GraphBuilder, node: Node, terms: list[Any]) -> Output:
    return reduce(lambda total, term: g.op("add", total, term, dtype=torch.int64), terms, g.number(0))
