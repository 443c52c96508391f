"""GraphModule -> the same without calls that nothing uses, in the bodies of its control flow too."""

from __future__ import annotations

from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult

from delegraph.aot import graph_modules

__all__ = ["dead_code_elimination_pass"]


def dead_code_elimination_pass(graph_module: GraphModule) -> PassResult:
    """Erase, in place, what has no user and no effect."""
    modified = False
    for _, module in graph_modules(graph_module):
        modified |= module.graph.eliminate_dead_code()
        module.recompile()
    return PassResult(graph_module, modified)
