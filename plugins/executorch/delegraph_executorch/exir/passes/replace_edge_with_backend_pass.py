"""ExecuTorch's `EdgeToBackendOpsPass`."""

from torch.fx import GraphModule

from delegraph.aot import graph_modules
from delegraph_executorch.exir.pass_base import PassBase, PassResult
from delegraph_executorch.exir.passes.executorch_prim_ops_registry import _PYTHON_SYM_OPS_TO_EXECUTORCH_SYM_OPS


class EdgeToBackendOpsPass(PassBase):
    """Names the runtime's operators, in place. Delegraph's lowering does it when it emits: no program needs it."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Look at each call, those of bodies too."""
        modified = False
        for _, module in graph_modules(graph_module):
            for node in module.graph.nodes:
                if node.op == "call_function" and node.target in _PYTHON_SYM_OPS_TO_EXECUTORCH_SYM_OPS:
                    node.target = _PYTHON_SYM_OPS_TO_EXECUTORCH_SYM_OPS[node.target]
                    modified = True
            module.recompile()
        return PassResult(graph_module, modified)
