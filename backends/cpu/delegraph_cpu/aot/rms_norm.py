"""A partition's graph -> root mean square norms, which onnxruntime has one operator for.

    x * rsqrt(mean(x ** 2, -1) + eps) * weight          Zhang and Sennrich, Root Mean Square Layer Normalization

As seven operators of their own it takes twice as long, for one row of 64 elements and for 128 of 2048.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from delegraph.aot import ResolvedSignature, schema_arguments
from delegraph.aot.authoring import Constants, reduced_dims
from delegraph_onnx.converters.normalization import simplified_layer_norm
from delegraph_onnx.converters.table import aten
from delegraph_onnx.graph_builder import GraphBuilder
from delegraph_onnx.graph_patterns import products, sums
from delegraph_onnx.node_facts import dtype_of, rank_of, shape_of

__all__ = ["RmsNorm", "rms_norms"]


@dataclass(frozen=True, slots=True, eq=False)
class RmsNorm:
    """`root` is the norm of `source`, times `weight`, of the size of its last dim; None: ones."""

    root: Node
    source: Node
    epsilon: float
    weight: Node | None
    replaced: frozenset[Node]

    def convert(self, g: GraphBuilder) -> None:
        """Add the operator."""
        norm = simplified_layer_norm(g, self.source, self.weight, self.epsilon)
        g.values[self.root] = g.record(norm, shape_of(self.root))


def rms_norms(graph: Graph, signature: ResolvedSignature) -> Iterator[RmsNorm]:
    """All of them, each with its weight if it has one."""
    numbers = {node: tensor for node, tensor in Constants.of(signature).tensors.items() if tensor.numel() == 1}
    for node in graph.nodes:
        norm = _norm(node, numbers)
        if norm is not None:
            yield _with_weight(norm)


def _norm(node: Node, numbers: Mapping[Node, torch.Tensor]) -> RmsNorm | None:
    """`node` as x * rsqrt(mean(x ** 2, -1) + eps)."""
    for x, root in products(node):
        shifted = _only(root, "rsqrt")
        for mean, epsilon in sums(shifted):
            squares = _only(mean, "mean.dim")
            if squares is None or epsilon not in numbers or dtype_of(x) != torch.float32:
                continue
            _, dims, keepdim, dtype = schema_arguments(mean)
            over_last = keepdim and dtype is None and reduced_dims(rank_of(x), dims) == (rank_of(x) - 1,)
            if over_last and squares.target == aten("pow.Tensor_Scalar") and squares.args == (x, 2):
                return RmsNorm(node, x, float(numbers[epsilon]), None, frozenset())
    return None


def _with_weight(norm: RmsNorm) -> RmsNorm:
    """With the product that is made of the norm alone, if it is one with a weight."""
    users = list(norm.root.users)
    if len(users) != 1 or not isinstance(shape_of(norm.source)[-1], int):
        return norm
    for one, weight in products(users[0]):
        if one is norm.root and dtype_of(weight) == torch.float32 and shape_of(weight) == shape_of(norm.source)[-1:]:
            return RmsNorm(users[0], norm.source, norm.epsilon, weight, frozenset([norm.root]))
    return norm


def _only(node: Any, name: str) -> Node | None:
    """What the call `name` reads first, if `node` is one that a single node reads."""
    if not isinstance(node, Node) or node.target != aten(name) or len(node.users) != 1:
        return None
    source = node.args[0]
    return source if isinstance(source, Node) else None
