"""GraphModule -> the same traced anew, every node with a `TensorSpec` in `meta["spec"]`.

Delegraph's lowering knows no specs: this is for passes and partitioners that read them.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree

from delegraph.aot import ResolvedSignature, graph_modules, is_delegate_call
from delegraph_executorch.exir.pass_base import ExportPass, PassResult, ProxyValue
from delegraph_executorch.exir.tensor import TensorSpec

__all__ = ["SpecPropPass", "make_spec"]


def make_spec(x: Any) -> Any:
    """The spec of a value: of a tensor a `TensorSpec`, a number as it is, anything else None."""
    if isinstance(x, ProxyValue):
        return make_spec(x.node.meta["val"])
    if isinstance(x, torch.Tensor):
        return TensorSpec.from_tensor(x)
    return x if isinstance(x, (int, bool, float)) else None


class SpecPropPass(ExportPass):
    """Traces the graph anew and gives every value its spec; what passes a value on shares its spec."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """The graph with specs, those of bodies included."""
        result = super().call(graph_module)
        for _, module in graph_modules(result.graph_module):
            for node in module.graph.nodes:
                node.meta["spec"] = _spec_of(node)
        return result

    def update_placeholder_tensor_specs(self, exported_program: ExportedProgram, graph_module: GraphModule) -> None:
        """Set `const` of the specs of weights: parameters, constants, and buffers that no run changes."""
        constants = {node.name for node in ResolvedSignature.of(exported_program).constants}
        for node in graph_module.graph.find_nodes(op="placeholder"):
            if "spec" not in node.meta:
                raise RuntimeError(f"placeholder {node.name} has no meta['spec']: run SpecPropPass before")
            if node.name in constants:
                node.meta["spec"].const = True


def _spec_of(node: Node) -> Any:
    if node.op == "output":
        return pytree.tree_map_only(Node, lambda value: value.meta.get("spec"), node.args[0])
    if node.target is operator.getitem:
        return node.args[0].meta["spec"][node.args[1]]  # type: ignore[union-attr]
    if is_delegate_call(node) and "spec" in node.meta:
        return node.meta["spec"]
    return pytree.tree_map(make_spec, node.meta.get("val"))
