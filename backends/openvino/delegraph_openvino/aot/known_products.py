"""A product of constants alone, with a weight that is stored in integers -> its result, computed when lowering.

    linear(zeros, dequantize(weight))  ->  a constant        an LSTMCell without an initial state

OpenVINO joins the product with the dequantizing of its weight into one operation, and fails when it folds that.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Any, Final

from numpy.typing import NDArray
from torch.fx import Graph, Node

from delegraph.aot.authoring import Constants, as_array, operator_name
from delegraph_openvino.aot.rounded_values import PRODUCTS, roundings_behind

__all__ = ["known_products"]

_SHAPED_ALIKE: Final = frozenset({"aten::full_like", "aten::zeros_like", "aten::ones_like"})
"""Operators that read only the shape of their operand."""


def known_products(graph: Graph, constants: Constants) -> dict[Node, NDArray[Any]]:
    """The results of such products of `graph`."""
    products = [
        node
        for node in _constant_calls(graph, constants.tensors)
        if operator_name(node).split(".")[0] in PRODUCTS and any(map(roundings_behind, node.all_input_nodes))
    ]
    values = {node: constants.computed(node, largest=inf) for node in products}
    return {node: as_array(value) for node, value in values.items() if value is not None}


def _constant_calls(graph: Graph, constants: Iterable[Node]) -> list[Node]:
    """The calls that depend only on constants: most products do not, and nothing is computed for these."""
    known, calls = set(constants), []
    for node in graph.nodes:
        alike = operator_name(node) in _SHAPED_ALIKE and all(isinstance(size, int) for size in node.meta["val"].shape)
        if node.op == "call_function" and (alike or known.issuperset(node.all_input_nodes)):
            known.add(node)
            calls.append(node)
    return calls
