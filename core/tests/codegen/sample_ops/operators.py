"""Custom operators: one functional, one that changes its argument."""

from __future__ import annotations

import torch


@torch.library.custom_op("sample_ops::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float, offset: int = 0) -> torch.Tensor:
    return x * factor + offset


@scaled.register_fake
def _(x: torch.Tensor, factor: float, offset: int = 0) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("sample_ops::put", mutates_args={"cache"})
def put(cache: torch.Tensor, row: torch.Tensor, position: int) -> None:
    cache[position] = row


@torch.library.custom_op("sample_ops::total", mutates_args=())
def total(xs: list[torch.Tensor], weight: torch.Tensor | None) -> torch.Tensor:
    return sum(xs, torch.zeros(())) if weight is None else sum(xs, torch.zeros(())) * weight
