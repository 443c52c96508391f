"""A tensor -> its elements moved along dims (`aten.roll`), by a gather for each dim.

torch's decomposition divides by the size of the dim (`torch._refs.roll`), which fails in the run where a dynamic one is
0; the remainder of no places fails nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["roll"]


def roll(x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> torch.Tensor:
    """`x` moved by each of `shifts` along the dim beside it; without `dims`, flat. The dtype and shape are `x`'s."""
    if not dims:
        return roll(x.flatten(), shifts, (0,)).reshape(x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        size = x.shape[dim]
        places = torch.arange(size, device=x.device) - shift
        x = x.index_select(dim, torch.remainder(places, size))
    return x
