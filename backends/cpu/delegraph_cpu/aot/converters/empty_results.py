"""A node that gives no elements -> constants of its shapes: nothing is computed, whatever the operator."""

from __future__ import annotations

import onnx_ir as ir
import torch
from torch.fx import Node

from delegraph_cpu.aot.dtypes import COMPLEX, computed_in
from delegraph_cpu.aot.graph_builder import Converted, GraphBuilder
from delegraph_cpu.aot.node_facts import are_known

__all__ = ["gives_nothing", "is_empty", "nothing"]


def gives_nothing(node: Node) -> bool:
    """Whether all that `node` gives is known to have no elements."""
    results = node.meta.get("val")
    results = results if isinstance(results, tuple | list) else [results]
    if not results or not all(isinstance(result, torch.Tensor) and is_empty(result) for result in results):
        return False
    return all(isinstance(size, int) or _origin(node, size) for result in results for size in result.shape)


def is_empty(tensor: torch.Tensor) -> bool:
    return any(isinstance(size, int) and size == 0 for size in tensor.shape)


def _origin(node: Node, size: torch.SymInt) -> tuple[Node, int] | None:
    """An operand with a dim of that dynamic size, and which dim it is."""
    for operand in node.all_input_nodes:
        for dim, other in enumerate(getattr(operand.meta.get("val"), "shape", ())):
            if str(other) == str(size):
                return operand, dim
    return None


def nothing(g: GraphBuilder, node: Node) -> Converted:
    """The results of a node that gives no elements: computed from nothing."""

    def empty(result: torch.Tensor) -> ir.Value:
        dtype, pair = computed_in(result.dtype), [2] if result.dtype in COMPLEX else []
        if are_known(*result.shape):
            return g.tensor_of_zeros([*result.shape, *pair], dtype)
        origins = [size if isinstance(size, int) else _origin(node, size) for size in result.shape]
        sizes = [
            found if isinstance(found, int) else g.size(g.value(found[0]), found[1])
            for found in origins
            if found is not None
        ]
        return g.op("Expand", g.tensor(0, dtype), g.sizes([*sizes, *pair]))

    results = node.meta["val"]
    return empty(results) if isinstance(results, torch.Tensor) else [empty(result) for result in results]
