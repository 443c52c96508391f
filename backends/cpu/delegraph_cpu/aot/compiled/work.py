"""Partition -> an estimate of its work, from the shapes alone: a second thread does not pay for little work."""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import prod
from typing import Final

import torch
from torch.fx import Graph, Node
from torch.utils import _pytree as pytree

from delegraph_onnx.converters.table import name_of
from delegraph_onnx.node_facts import COPIES

__all__ = ["multiply_adds"]

ELEMENT: Final = 16
"""Multiply-adds for each element written: at 20 GB/s and 30 G multiply-adds a second, float32 read and written."""


def multiply_adds(graph: Graph, constants: Collection[Node] = ()) -> int | None:
    """About how many multiply-adds a run of `graph` takes, an element of a result counting as `ELEMENT` of them.

    Calls on `constants` alone, such as dequantizing a weight, count as 0: they are folded, or kernels multiply the
    integers. None if the number is not known: with dynamic shapes, and loops.
    """
    total, known = 0, set(constants)
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if known.issuperset(node.all_input_nodes) and not random:
            known.add(node)
        else:
            count = _of_call(node)
            if count is None:
                return None
            total += count
    return total


def _of_call(node: Node) -> int | None:
    if isinstance(node.target, torch._ops.HigherOrderOperator):
        return None
    results = [value for value in pytree.tree_leaves(node.meta["val"]) if isinstance(value, torch.Tensor)]
    operands = [value.meta["val"] for value in node.all_input_nodes]
    tensors = [value for value in (*results, *operands) if isinstance(value, torch.Tensor)]
    if not all(isinstance(dim, int) for tensor in tensors for dim in tensor.shape):
        return None
    if node.target in COPIES and results[0].dtype == tensors[-1].dtype:
        return 0  # within a delegate there is nothing to do
    products = _PRODUCTS.get(name_of(node))
    elements = sum(result.numel() for result in results)
    return ELEMENT * elements + (products(node, elements) if products else 0)


def _shape(node: Node, argument: int) -> tuple[int, ...]:
    return tuple(node.args[argument].meta["val"].shape)  # type: ignore[union-attr]


def _matrix_product(left: int) -> Callable[[Node, int], int]:
    """`left` is the position of the left operand, whose rows each element of the result is a product with."""
    return lambda node, elements: elements * _shape(node, left)[-1]


def _convolution(node: Node, elements: int) -> int:
    """An element of the result is a sum over the weights of its channel."""
    return elements * prod(_shape(node, 1)[1:])


def _transposed_convolution(node: Node, elements: int) -> int:
    """Each element of the input is multiplied with all weights of its channel."""
    return prod(_shape(node, 0)) * prod(_shape(node, 1)[1:])


def _recurrent(node: Node, elements: int) -> int:
    """Each weight is multiplied with once in each step, for each row of the batch."""
    weights = pytree.tree_leaves([a for a in node.args if isinstance(a, list | tuple)])
    count: int = sum(prod(weight.meta["val"].shape) for weight in weights if isinstance(weight, Node))
    return count * prod(_shape(node, 0)[:-1])


_PRODUCTS: Final[dict[str, Callable[[Node, int], int]]] = {
    "mm": _matrix_product(0),
    "bmm": _matrix_product(0),
    "matmul": _matrix_product(0),
    "linear": _matrix_product(0),
    "addmm": _matrix_product(1),
    "baddbmm": _matrix_product(1),
    "mv": _matrix_product(0),
    "dot": _matrix_product(0),
    **dict.fromkeys(
        ("convolution", "_convolution"),
        lambda node, elements: (_transposed_convolution if node.args[6] else _convolution)(node, elements),
    ),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed_convolution),
    "scaled_dot_product_attention": lambda node, elements: 2 * elements * _shape(node, 1)[-2],
    "lstm": _recurrent,
    "gru": _recurrent,
}
