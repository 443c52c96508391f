"""ACME's operators, as torch knows them: import this module before a model that uses them is exported."""

from __future__ import annotations

import torch


@torch.library.custom_op("acme_ops::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    """`factor x`."""
    return x * factor


@scaled.register_fake
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("acme_ops::update_cache", mutates_args={"cache"})
def update_cache(cache: torch.Tensor, row: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    """Write `row` [d] into `cache` [n, d] at `position` (int64 []); the rows so far, added up: [d]."""
    cache[position] = row
    return cache[: int(position) + 1].sum(0)


@update_cache.register_fake
def _(cache: torch.Tensor, row: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(row)
