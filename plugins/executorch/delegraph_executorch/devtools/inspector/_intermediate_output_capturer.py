"""A graph and its inputs -> what each node with a debug handle gives."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.interpreter import Interpreter

from delegraph_executorch.devtools.inspector._debug_handles import DebugHandle, as_key, is_captured

__all__ = ["IntermediateOutputCapturer"]


class IntermediateOutputCapturer(Interpreter):
    """Runs a graph and keeps copies of the values on the way; of nodes that share a handle, the last one's."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.captured: dict[DebugHandle, Any] = {}

    def run_and_capture(self, *args: Any, **kwargs: Any) -> dict[DebugHandle, Any]:
        """Run, and give the values by handle."""
        self.captured = {}
        self.run(*args, **kwargs)
        return self.captured

    def run_node(self, n: Node) -> Any:
        """Run one node, as `Interpreter` does, and keep what it gives."""
        result = super().run_node(n)
        if is_captured(n):
            several = isinstance(result, (tuple, list))
            self.captured[as_key(n.meta["debug_handle"])] = [*map(_copy, result)] if several else _copy(result)
        return result


def _copy(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value
