"""GraphModule, {target: target} -> the same, its calls of the one calling the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.fx import GraphModule

from delegraph.aot import graph_modules
from delegraph_executorch.exir.pass_base import PassResult

__all__ = ["retarget"]


def retarget(graph_module: GraphModule, targets: Mapping[Any, Any]) -> PassResult:
    """Let each call of a key of `targets`, in bodies of control flow too, call its value; in place."""
    modified = False
    for _, module in graph_modules(graph_module):
        for node in module.graph.nodes:
            if node.op == "call_function" and node.target in targets:
                node.target = targets[node.target]
                modified = True
        module.recompile()
    return PassResult(graph_module, modified)
