"""GraphModule -> the same, views as the copies that they are in programs without aliases."""

from __future__ import annotations

from typing import Any

import torch

from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue

__all__ = ["ReplaceBrokenOpsWithFunctionalOpsPass"]


class ReplaceBrokenOpsWithFunctionalOpsPass(ExportPass):
    """Calls `view_copy` where `view` was called, and so on for each operator whose result is a view."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, of the copy."""
        if getattr(op, "is_view", False):
            namespace, _, name = op._schema.name.partition("::")
            op = getattr(getattr(getattr(torch.ops, namespace), f"{name}_copy"), op._overloadname)
        return super().call_operator(op, args, kwargs, meta)
