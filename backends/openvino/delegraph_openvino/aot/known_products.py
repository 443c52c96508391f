"""A product of constants alone, with a weight that is stored in integers -> its result, computed when lowering.

    linear(zeros, dequantize(weight))  ->  a constant        an LSTMCell without an initial state

OpenVINO joins the product with the dequantizing of its weight into one operation, and fails when it folds that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import torch
from numpy.typing import NDArray
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from delegraph.aot.authoring import as_array, operator_name
from delegraph_openvino.aot.rounded_values import PRODUCTS, roundings_behind

__all__ = ["known_products"]

_SHAPED_ALIKE: Final = frozenset({"aten::full_like", "aten::zeros_like", "aten::ones_like"})
"""Operators that read only the shape of their operand."""


def known_products(graph: Graph, tensors: Mapping[Node, torch.Tensor]) -> dict[Node, NDArray[Any]]:
    """The results of such products of `graph`, whose weights and constants are `tensors`."""
    constant = _constant_calls(graph, tensors)
    products = {
        node
        for node in constant
        if operator_name(node).split(".")[0] in PRODUCTS and any(map(roundings_behind, node.all_input_nodes))
    }
    needed = _with_sources(products)
    values: dict[Node, Any] = {node: tensor.detach() for node, tensor in tensors.items()}
    for node in filter(needed.__contains__, constant):
        values[node] = _result(node, values)
    return {node: as_array(values[node]) for node in products}


def _constant_calls(graph: Graph, constants: Iterable[Node]) -> list[Node]:
    """The calls that depend only on constants, in the order of the graph."""
    known, calls = set(constants), []
    for node in graph.nodes:
        if node.op == "call_function" and known.issuperset(_read(node)):
            known.add(node)
            calls.append(node)
    return calls


def _read(node: Node) -> list[Node]:
    """The nodes whose values the result depends on."""
    if operator_name(node) in _SHAPED_ALIKE and all(isinstance(size, int) for size in node.meta["val"].shape):
        return []
    return node.all_input_nodes


def _with_sources(products: Collection[Node]) -> set[Node]:
    """`products` and all nodes on which they depend."""
    needed, left = set(products), list(products)
    while left:
        new = [source for source in _read(left.pop()) if source not in needed]
        needed.update(new)
        left += new
    return needed


def _result(node: Node, values: dict[Node, Any]) -> Any:
    def value_of(source: Node) -> Any:
        fake = source.meta["val"]
        return values[source] if source in values else torch.empty(fake.shape, dtype=fake.dtype)

    return node.target(*map_arg(node.args, value_of), **map_arg(node.kwargs, value_of))  # type: ignore[operator]
