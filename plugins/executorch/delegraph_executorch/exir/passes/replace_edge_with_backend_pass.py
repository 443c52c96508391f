"""GraphModule -> the same, Python's operators on symbols as the runtime's `executorch_prim` ones."""

from __future__ import annotations

from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from delegraph_executorch.exir.passes._retarget import retarget
from delegraph_executorch.exir.passes.executorch_prim_ops_registry import _PYTHON_SYM_OPS_TO_EXECUTORCH_SYM_OPS

__all__ = ["EdgeToBackendOpsPass"]


class EdgeToBackendOpsPass(PassBase):
    """Names the runtime's operators, in place. Delegraph's lowering does it when it emits: no program needs it."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Look at each call, those of bodies too."""
        return retarget(graph_module, _PYTHON_SYM_OPS_TO_EXECUTORCH_SYM_OPS)
