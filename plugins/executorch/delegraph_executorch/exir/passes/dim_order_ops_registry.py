"""Operators by memory format, and the same by dim order, which the core defines; and which order a tensor has."""

from typing import Any, Final

import torch

from delegraph.aot import exir_ops, get_dim_order

DimOrderOpsMap: Final[dict[Any, Any]] = {
    exir_ops.edge.aten._to_copy.default: exir_ops.edge.dim_order_ops._to_dim_order_copy.default,
    exir_ops.edge.aten.empty.memory_format: exir_ops.edge.dim_order_ops._empty_dim_order.default,
    exir_ops.edge.aten.clone.default: exir_ops.edge.dim_order_ops._clone_dim_order.default,
}
MemoryFormatOpsMap: Final[dict[Any, Any]] = {by_order: by_format for by_format, by_order in DimOrderOpsMap.items()}


def is_channel_last_dim_order(tensor: torch.Tensor) -> bool:
    """Whether `tensor` has four dims that lie in the order of channels last."""
    return tensor.dim() == 4 and list(tensor.dim_order()) == get_dim_order(torch.channels_last, 4)


def is_contiguous_dim_order(tensor: torch.Tensor) -> bool:
    """Whether the dims of `tensor` lie in their own order."""
    return list(tensor.dim_order()) == get_dim_order(torch.contiguous_format, tensor.dim())
