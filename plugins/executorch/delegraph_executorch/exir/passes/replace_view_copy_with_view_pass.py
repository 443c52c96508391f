"""GraphModule with specs -> the same, `view_copy` as `memory.view`: its result lies where its argument does.

Delegraph's lowering elides views by itself; this is for code that goes through ExecuTorch's passes one by one.
"""

from __future__ import annotations

from copy import copy

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from delegraph.aot import graph_modules
from delegraph_executorch.exir import memory
from delegraph_executorch.exir.passes.normalize_view_copy_base_pass import _is_view_copy
from delegraph_executorch.exir.tensor import (
    TensorSpec,
    contiguous_stride_from_shape,
    determine_tensor_dynanism,
    dim_order_from_stride,
)

__all__ = ["ReplaceViewCopyWithViewPass"]


class ReplaceViewCopyWithViewPass(PassBase):
    """Replaces views of what is no view itself (`NormalizeViewCopyBasePass`), but for those that the graph returns."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Replace them in place, those of bodies too."""
        replaced = False
        for _, module in graph_modules(graph_module):
            for node in module.graph.nodes:
                if _is_replaceable(node):
                    node.meta["spec"] = _view_spec(node.args[0].meta["spec"], node.meta["val"].shape)
                    node.target = memory.view
                    replaced = True
            module.recompile()
        return PassResult(graph_module, replaced)

    def requires(self, graph_module: GraphModule) -> None:
        """Raise for a view of a view."""
        for _, module in graph_modules(graph_module):
            for node in module.graph.nodes:
                assert not (_is_replaceable(node) and _is_view_copy(node.args[0])), (
                    f"{node.name} is a view of a view: run NormalizeViewCopyBasePass before"
                )


def _is_replaceable(node: Node) -> bool:
    return _is_view_copy(node) and all(user.op != "output" for user in node.users)


def _view_spec(base: TensorSpec, shape: torch.Size) -> TensorSpec:
    """The spec of `base` with another shape."""
    spec = copy(base)
    spec.shape = list(shape)
    spec.stride = contiguous_stride_from_shape(shape)
    spec.dim_order = dim_order_from_stride(spec.stride)
    spec.shape_dynamism = determine_tensor_dynanism(shape)
    if spec.shape_dynamism != base.shape_dynamism or spec.nbytes() != base.nbytes():
        raise RuntimeError(f"a view of shape {tuple(shape)} does not fit its base of shape {tuple(base.shape)}")
    return spec
