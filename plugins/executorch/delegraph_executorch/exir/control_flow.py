"""ExecuTorch's `executorch.exir.control_flow`: torch's own control flow, under its names."""

from __future__ import annotations

from torch._higher_order_ops import cond, map, scan, while_loop

__all__ = ["cond", "map", "scan", "while_loop"]
