"""GraphModule -> the same, concatenations without their empty parts."""

from __future__ import annotations

from typing import cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import guard_or_true

from delegraph.aot import exir_ops
from delegraph_executorch.exir.pass_base import ExportPass, PassResult

__all__ = ["PruneEmptyTensorsPass"]


class PruneEmptyTensorsPass(ExportPass):
    """Takes empty tensors out of `cat`, in place; one of nothing but empty tensors becomes a `full`."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Look at each `cat`; a size that is not known counts as not 0."""
        modified = False
        for node in graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.cat.default):
            parts = list(cast(list[Node], node.args[0]))
            kept = [part for part in parts if guard_or_true(part.meta["val"].numel() != 0)]
            modified |= len(kept) < len(parts)
            if kept:
                node.args = (kept, *node.args[1:])
            else:
                _replace_by_full(graph_module, node)
        graph_module.graph.eliminate_dead_code()
        graph_module.graph.lint()
        return PassResult(graph_module, modified)


def _replace_by_full(graph_module: GraphModule, node: Node) -> None:
    value = node.meta["val"]
    with graph_module.graph.inserting_after(node):
        full = graph_module.graph.call_function(
            exir_ops.edge.aten.full.default, (tuple(value.shape), 0), {"dtype": value.dtype}
        )
    full.meta = dict(node.meta)
    node.replace_all_uses_with(full)
