"""GraphModule -> the same, each `view_copy` of what is not a `view_copy` itself."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from delegraph.aot import graph_modules

__all__ = ["NormalizeViewCopyBasePass"]


class NormalizeViewCopyBasePass(PassBase):
    """Makes views of views into views of their base, in place; dead code elimination then takes what is left over."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Go through the views in graph order: the base of a base is one already."""
        modified = False
        for _, module in graph_modules(graph_module):
            for node in module.graph.nodes:
                if _is_view_copy(node) and _is_view_copy(base := node.args[0]):
                    node.args = (base.args[0], *node.args[1:])
                    modified = True
            module.recompile()
        return PassResult(graph_module, modified)


def _is_view_copy(node: Any) -> bool:
    return isinstance(node, Node) and node.target == torch.ops.aten.view_copy.default
