"""GraphModule -> the same on another device: its tensors, and what its calls make."""

from __future__ import annotations

import torch
from torch.fx import GraphModule

from delegraph_executorch.exir.pass_base import ExportPass, PassResult

__all__ = ["ToDevicePass"]


class ToDevicePass(ExportPass):
    """Moves a module, and changes `device=` of its calls, in place."""

    def __init__(self, device: str | torch.device) -> None:
        super().__init__()
        self.device = torch.device(device)

    def call(self, graph_module: GraphModule) -> PassResult:
        """Move it."""
        moved = graph_module.to(self.device)
        for node in moved.graph.nodes:
            if node.op == "call_function" and node.kwargs.get("device", self.device) != self.device:
                node.update_kwarg("device", self.device)
        moved.recompile()
        return PassResult(moved, True)
