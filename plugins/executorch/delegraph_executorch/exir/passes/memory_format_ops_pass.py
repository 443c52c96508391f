"""GraphModule -> the same, copies and empty tensors by memory format as those by dim order, and back."""

from __future__ import annotations

from typing import Any

import torch

from delegraph_executorch.exir.dim_order_utils import get_dim_order, get_memory_format
from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue
from delegraph_executorch.exir.passes.dim_order_ops_registry import DimOrderOpsMap, MemoryFormatOpsMap

__all__ = ["DimOrderOpsRevertPass", "MemoryFormatOpsPass"]


class MemoryFormatOpsPass(ExportPass):
    """Calls operators of `dim_order_ops`. `to_edge` has done it already; this is for graphs that a pass has made."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, by dim order; without a memory format the argument's order is kept, and sizes are contiguous."""
        if op not in DimOrderOpsMap:
            return super().call_operator(op, args, kwargs, meta)
        others = {name: value for name, value in kwargs.items() if name != "memory_format"}
        source = args[0].data if isinstance(args[0], ProxyValue) else args[0]
        is_tensor = isinstance(source, torch.Tensor)
        order = get_dim_order(kwargs.get("memory_format"), source.dim() if is_tensor else len(source))
        if order is None:
            order = [int(dim) for dim in source.dim_order()] if is_tensor else list(range(len(source)))
        return super().call_operator(DimOrderOpsMap[op], args, {**others, "dim_order": order}, meta)


class DimOrderOpsRevertPass(ExportPass):
    """Calls ATen's own operators, for backends that know no dim order."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, by memory format."""
        if op not in MemoryFormatOpsMap:
            return super().call_operator(op, args, kwargs, meta)
        others = {name: value for name, value in kwargs.items() if name != "dim_order"}
        memory_format = get_memory_format(kwargs.get("dim_order"))
        return super().call_operator(MemoryFormatOpsMap[op], args, {**others, "memory_format": memory_format}, meta)
