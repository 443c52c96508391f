"""The table of operators that are tried on integers, and the grid on which all users put a node's result."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import torch
from torch.fx import Graph, Node

from delegraph.aot.authoring import Granularity, quantize_call
from delegraph_onnx.converters.empty_results import gives_nothing
from delegraph_onnx.converters.table import aten, schema_arguments
from delegraph_onnx.dtypes import FLOATS, HALVES
from delegraph_onnx.graph_builder import Converted, GraphBuilder
from delegraph_onnx.integers import Affine, Integers, dequantized
from delegraph_onnx.node_facts import CASTS, outer_dtype_of

__all__ = ["OnIntegers", "activation", "integers_for", "on_integers", "wanted_grids"]

OnIntegers: TypeAlias = "Integers | Sequence[Integers] | Converted | None"
"""The result of a converter on integers: integers, values in float, or None if it does not apply."""

_F = TypeVar("_F", bound=Callable[..., OnIntegers])

_TABLE: Final[dict[Callable[..., Any], Callable[..., OnIntegers]]] = {}

_COMMUTING: Final[set[Callable[..., Any]]] = set()
"""Operators that may as well be applied to the integers: quantizing commutes with them."""


def integers_for(operators: str | Iterable[Callable[..., Any]], *, commutes: bool = False) -> Callable[[_F], _F]:
    """Put the decorated function into the table, for names of aten overloads, or for the callables that nodes call.

    `commutes`: quantizing the operator's result equals quantizing its input, on any grid.
    """
    called = list(map(aten, operators.split()) if isinstance(operators, str) else operators)

    def register(function: _F) -> _F:
        for target in called:
            assert target not in _TABLE, target
            _TABLE[target] = function
        _COMMUTING.update(called if commutes else ())
        return function

    return register


def on_integers(g: GraphBuilder, node: Node) -> Converted | None:
    """Convert `node` on integers, if possible. Returns its value in float, which is left out unless it is needed."""
    takes = _computes_in_float32(node) and not gives_nothing(node)  # nothing is a constant of floats
    convert = _TABLE.get(node.target) if takes else None  # type: ignore[arg-type]
    result = None if convert is None else convert(g, node, *schema_arguments(node))
    if isinstance(result, Integers):
        g.integers[node] = result
        return dequantized(g, result)
    if isinstance(result, Sequence) and isinstance(result[0], Integers):
        g.integers[node] = result  # type: ignore[assignment]  # all of them are
        return [dequantized(g, part) for part in result]  # type: ignore[arg-type]
    return result  # type: ignore[return-value]


def _computes_in_float32(node: Node) -> bool:
    value = node.meta.get("val")
    first = value[0] if isinstance(value, list | tuple) and value else value
    return isinstance(first, torch.Tensor) and first.dtype in FLOATS | HALVES


def activation(g: GraphBuilder, node: object) -> tuple[Integers, Affine] | None:
    """The integers of `node` and their grid, if it has some of 8 bits with parameters for the whole tensor."""
    integers = g.integers.get(node) if isinstance(node, Node) else None
    if not isinstance(integers, Integers) or integers.grid is None or integers.grid.dtype is not np.uint8:
        return None
    return integers, integers.grid


def wanted_grids(graph: Graph) -> dict[Node, Affine]:
    """The grids of nodes whose result every user puts on one grid of 8 bits, perhaps after moving or limiting it."""
    by_node: dict[Node, Affine] = {}
    for node in reversed(graph.nodes):
        grids = {_quantize_grid(user) or (by_node.get(user) if _commutes(user) else None) for user in node.users}
        grid = grids.pop() if len(grids) == 1 else None
        if grid is not None and grid.dtype is np.uint8:
            by_node[node] = grid
    return by_node


def _commutes(node: Node) -> bool:
    """Whether quantizing commutes with `node`; a cast commutes if it keeps the dtype and at most changes the layout."""
    if node.target in CASTS:
        return outer_dtype_of(node) == outer_dtype_of(node.args[0])  # type: ignore[arg-type]
    return node.target in _COMMUTING or node.target is operator.getitem


def _quantize_grid(node: Node) -> Affine | None:
    """The grid of a quantize call without its limits, which are applied where the call itself is converted."""
    call = quantize_call(node)
    if call is None or not call.quantizes or call.granularity is not Granularity.TENSOR:
        return None
    match call.scale, call.zero_point, call.qmin, call.qmax:
        case float(scale), int(zero_point), int(low), int(high):
            return Affine.of(scale, zero_point, low, high, call.dtype).full
    return None
