"""ExecuTorch's `dead_code_elimination_pass`."""

from torch.fx import GraphModule

from delegraph.aot import graph_modules
from delegraph_executorch.exir.pass_base import PassResult


def dead_code_elimination_pass(graph_module: GraphModule) -> PassResult:
    """Erase, in place, what has no user and no effect."""
    modified = False
    for _, module in graph_modules(graph_module):
        modified |= module.graph.eliminate_dead_code()
        module.recompile()
    return PassResult(graph_module, modified)
