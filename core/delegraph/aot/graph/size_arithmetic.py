"""A size as sympy's expression -> calls in a graph that compute it from sizes that nodes have.

4*s0 - 4,  s0: n         m = mul(n, 4)
                         a = add(m, -4)
"""

from __future__ import annotations

from collections.abc import Mapping

import sympy
from torch.fx import Graph, Node, Proxy
from torch.fx.proxy import GraphAppendingTracer

from delegraph.aot.graph.fake_values import fake_values
from delegraph.aot.graph.provenance import SOURCE
from delegraph.aot.torch_internals import PythonReferenceAnalysis, sympy_interp

__all__ = ["complete", "size_calls"]


def size_calls(size: sympy.Expr, symbols: Mapping[sympy.Symbol, Node], graph: Graph) -> Node | None:
    """The node with `size`, whose `symbols` these nodes have: calls where the graph's next nodes go, still without
    `meta`. None where the result is no call. Raises what sympy does for functions without a form in Python."""
    tracer = GraphAppendingTracer(graph)
    proxies = {symbol: Proxy(node, tracer) for symbol, node in symbols.items()}
    result = sympy_interp(PythonReferenceAnalysis, proxies, size)
    return result.node if isinstance(result, Proxy) else None


def complete(node: Node, meta: Mapping[str, object], size: sympy.Expr) -> None:
    """Give a call of `size_calls` its value, and beside it `meta`: the line of user code that the size is for."""
    value = node.target(*fake_values(node.args))  # type: ignore[operator]
    node.meta = {**meta, "val": value, SOURCE: f"size {size}: {node.name}"}
