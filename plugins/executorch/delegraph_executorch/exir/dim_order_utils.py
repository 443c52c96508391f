"""torch's memory formats <-> dim orders (`exir/dim_order_utils.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

__all__ = ["get_dim_order", "get_memory_format", "is_channel_last_dim_order", "is_contiguous_dim_order"]

_CHANNELS_LAST: Final = [0, 2, 3, 1]


def get_memory_format(dim_order: Sequence[int] | None) -> torch.memory_format:
    """The memory format of tensors whose dims lie in this order, the outermost first; None keeps what there is.

    Raises `AssertionError` for an order that is neither contiguous nor, with four dims, channels last.
    """
    if dim_order is None:
        return torch.preserve_format
    if list(dim_order) == list(range(len(dim_order))):
        return torch.contiguous_format
    assert list(dim_order) == _CHANNELS_LAST, f"no memory format of torch has the dim order {list(dim_order)}"
    return torch.channels_last


def get_dim_order(memory_format: torch.memory_format | None, ndim: int) -> list[int] | None:
    """The order in which the `ndim` dims of a tensor in `memory_format` lie; None where the format keeps what there is.

    Raises `AssertionError` for a format without dim order, or channels last of other than four dims.
    """
    if memory_format in (None, torch.preserve_format):
        return None
    assert ndim >= 0, f"a tensor has no dims or more, not {ndim}"
    if memory_format == torch.contiguous_format:
        return list(range(ndim))
    assert memory_format == torch.channels_last, f"{memory_format} has no dim order"
    assert ndim == len(_CHANNELS_LAST), f"channels last is a format of four dims, not of {ndim}"
    return list(_CHANNELS_LAST)


def is_channel_last_dim_order(tensor: torch.Tensor) -> bool:
    """Whether `tensor` has four dims that lie in the order of channels last."""
    return list(tensor.dim_order()) == _CHANNELS_LAST


def is_contiguous_dim_order(tensor: torch.Tensor) -> bool:
    """Whether the dims of `tensor` lie in their own order."""
    return list(tensor.dim_order()) == list(range(tensor.dim()))
