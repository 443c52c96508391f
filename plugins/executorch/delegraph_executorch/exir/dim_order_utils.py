"""torch's memory formats <-> dim orders (`exir/dim_order_utils.py`)."""

from __future__ import annotations

import torch

from delegraph.aot import get_dim_order, get_memory_format

__all__ = ["get_dim_order", "get_memory_format", "is_channel_last_dim_order", "is_contiguous_dim_order"]


def is_channel_last_dim_order(tensor: torch.Tensor) -> bool:
    """Whether `tensor` has four dims that lie in the order of channels last."""
    return tensor.dim() == 4 and list(tensor.dim_order()) == get_dim_order(torch.channels_last, 4)


def is_contiguous_dim_order(tensor: torch.Tensor) -> bool:
    """Whether the dims of `tensor` lie in their own order."""
    return list(tensor.dim_order()) == get_dim_order(torch.contiguous_format, tensor.dim())
