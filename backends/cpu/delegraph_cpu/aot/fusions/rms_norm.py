"""A partition's graph -> root mean square norms, which onnxruntime has one operator for.

    x * rsqrt(mean(x ** 2, -1) + eps) * weight          Zhang and Sennrich, Root Mean Square Layer Normalization

As seven operators of their own it takes twice as long, for one row of 64 elements and for 128 of 2048.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch.fx import Graph, Node

from delegraph.aot import ResolvedSignature, schema_arguments
from delegraph.aot.authoring import Bindings, Capture, Constants, matches, op, reduced_dims
from delegraph_onnx.converters.normalization import simplified_layer_norm
from delegraph_onnx.converters.table import aten
from delegraph_onnx.graph_builder import GraphBuilder
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


def _is_read_once(node: Node) -> bool:
    return len(node.users) == 1


def _is_over_the_last_dim(mean: Node) -> bool:
    source, dims, keepdim, dtype = schema_arguments(mean)
    last = reduced_dims(rank_of(source), dims) == (rank_of(source) - 1,)
    return last and keepdim and dtype is None and _is_read_once(mean)


_X: Final = Capture("x", lambda x: dtype_of(x) == torch.float32)
_MEAN: Final = op(aten("mean.dim"), op(aten("pow.Tensor_Scalar"), _X, 2)).where(_is_over_the_last_dim)
_SHIFTED: Final = op(aten("add.Tensor"), _MEAN, Capture("epsilon"), alpha=1)
_NORM: Final = op(aten("mul.Tensor"), _X, op(aten("rsqrt"), _SHIFTED).where(_is_read_once))
_WEIGHTED: Final = op(aten("mul.Tensor"), _NORM, Capture("weight", lambda w: dtype_of(w) == torch.float32))


def rms_norms(graph: Graph, signature: ResolvedSignature) -> Iterator[RmsNorm]:
    """All of them, each with its weight if it has one."""
    constants = Constants.of(signature)
    for node in graph.nodes:
        for norm in matches(_NORM, node):
            epsilon = constants.tensors.get(norm["epsilon"])
            if epsilon is not None and epsilon.numel() == 1:
                yield _with_weight(node, norm, float(epsilon))
                break


def _with_weight(root: Node, norm: Bindings, epsilon: float) -> RmsNorm:
    """With the product that is made of the norm alone, if it is one with a weight."""
    source = norm["x"]
    if _is_read_once(root) and isinstance(shape_of(source)[-1], int):
        [product] = root.users
        for weighted in matches(_WEIGHTED, product):
            if weighted.calls[_NORM] is root and shape_of(weighted["weight"]) == shape_of(source)[-1:]:
                return RmsNorm(product, source, epsilon, weighted["weight"], frozenset([root]))
    return RmsNorm(root, source, epsilon, None, frozenset())
