"""ExecuTorch's `executorch.exir.backend.canonical_partitioners.duplicate_dequant_node_pass`."""

from __future__ import annotations

from torch.fx import GraphModule, Node

from delegraph.aot import ExportPass, PassResult

__all__ = ["DuplicateDequantNodePass"]

DEQUANTIZE = "quantized_decomposed.dequantize_per_tensor.default"


class DuplicateDequantNodePass(ExportPass):
    """Gives each reader of a dequantized value a dequantize call of its own, so that `dq -> op -> q` can be matched:

    before                    after
    x = dq(q)                 x = dq(q);  y = a(x)
    y = a(x);  z = b(x)       x' = dq(q); z = b(x')
    """

    def call(self, graph_module: GraphModule) -> PassResult:
        """Edits the graph in place."""
        shared = [node for node in graph_module.graph.nodes if _is_dequantize(node) and len(node.users) > 1]
        for node in shared:
            for user in list(node.users)[1:]:
                with graph_module.graph.inserting_before(user):
                    copy = graph_module.graph.node_copy(node)
                user.replace_input_with(node, copy)
        if shared:
            graph_module.recompile()
        return PassResult(graph_module, bool(shared))


def _is_dequantize(node: Node) -> bool:
    return node.op == "call_function" and DEQUANTIZE in (str(node.target), getattr(node.target, "__name__", ""))
