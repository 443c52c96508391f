"""GraphModule -> the same, `t` as the copy that it is in programs without aliases."""

from __future__ import annotations

from typing import Any

import torch

from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue

__all__ = ["NormalizeTransposePass"]


class NormalizeTransposePass(ExportPass):
    """Calls `t_copy` where `t` was called."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, of the copy."""
        copying = torch.ops.aten.t_copy.default if op == torch.ops.aten.t.default else op
        return super().call_operator(copying, args, kwargs, meta)
