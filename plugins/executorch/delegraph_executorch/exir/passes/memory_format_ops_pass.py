"""GraphModule -> the same, copies by memory format as copies by dim order, and back."""

from __future__ import annotations

from typing import Any, Final

import torch

from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue
from delegraph_executorch.exir.passes.dim_order_ops_registry import DimOrderOpsMap, MemoryFormatOpsMap

__all__ = ["DimOrderOpsRevertPass", "MemoryFormatOpsPass"]

_CHANNELS_LAST: Final = [0, 2, 3, 1]


class MemoryFormatOpsPass(ExportPass):
    """Calls operators of `dim_order_ops`. `to_edge` has done it already; this is for graphs that a pass has made."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, by dim order; without a memory format the argument's order is kept."""
        if op not in DimOrderOpsMap:
            return super().call_operator(op, args, kwargs, meta)
        others = {name: value for name, value in kwargs.items() if name != "memory_format"}
        source = args[0].data if isinstance(args[0], ProxyValue) else args[0]
        order = {
            torch.contiguous_format: list(range(source.dim())),
            torch.channels_last: _CHANNELS_LAST,
        }.get(kwargs.get("memory_format"), [int(dim) for dim in source.dim_order()])
        return super().call_operator(DimOrderOpsMap[op], args, {**others, "dim_order": order}, meta)


class DimOrderOpsRevertPass(ExportPass):
    """Calls ATen's own copies, for backends that know no dim order."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, by memory format."""
        if op not in MemoryFormatOpsMap:
            return super().call_operator(op, args, kwargs, meta)
        others = {name: value for name, value in kwargs.items() if name != "dim_order"}
        format_ = _memory_format(kwargs.get("dim_order"))
        return super().call_operator(MemoryFormatOpsMap[op], args, {**others, "memory_format": format_}, meta)


def _memory_format(dim_order: Any) -> torch.memory_format:
    if dim_order is None:
        return torch.preserve_format
    return torch.channels_last if list(dim_order) == _CHANNELS_LAST else torch.contiguous_format
