"""torch's memory formats <-> dim orders (ExecuTorch `exir/dim_order_utils.py`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["get_dim_order", "get_memory_format", "is_channel_last_dim_order", "is_contiguous_dim_order"]

_CHANNELS_LAST = [0, 2, 3, 1]


def get_memory_format(dim_order: Sequence[int] | None) -> torch.memory_format:
    """The format with this dim order. Raises AssertionError if there is none."""
    if dim_order is None:
        return torch.preserve_format
    if list(dim_order) == list(range(len(dim_order))):
        return torch.contiguous_format
    if list(dim_order) == _CHANNELS_LAST:
        return torch.channels_last
    raise AssertionError(
        f"no torch.memory_format has the dim order {list(dim_order)}; permute the tensor instead"
    )


def get_dim_order(memory_format: torch.memory_format | None, ndim: int) -> list[int] | None:
    """The dim order of a tensor of this format and rank; None keeps what it is. Raises AssertionError for others."""
    if memory_format in (None, torch.preserve_format):
        return None
    if memory_format == torch.contiguous_format and ndim >= 0:
        return list(range(ndim))
    if memory_format == torch.channels_last and ndim == 4:
        return list(_CHANNELS_LAST)
    raise AssertionError(f"{memory_format} is not a format of tensors of rank {ndim}: channels_last is of rank 4")


def is_channel_last_dim_order(tensor: torch.Tensor) -> bool:
    """Whether a tensor of rank 4 has its channels innermost."""
    return tensor.dim() == 4 and list(tensor.dim_order()) == _CHANNELS_LAST


def is_contiguous_dim_order(tensor: torch.Tensor) -> bool:
    """Whether the dims lie in memory as they are counted."""
    return list(tensor.dim_order()) == list(range(tensor.dim()))
