"""`index_add`, `index_copy` -> `index_put`, as torch has it, at places that never count from the end.

torch raises an error for a place below 0 in these two, and counts it from the end in `index_put`. Without its sign the
place is beyond the end of any tensor, so that `index_put` raises too.
"""

from __future__ import annotations

import torch

from delegraph.aot.torch_internals import index_add as _index_add
from delegraph.aot.torch_internals import index_copy as _index_copy

__all__ = ["index_add", "index_copy"]


def index_add(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: torch.types.Number = 1
) -> torch.Tensor:
    """`x` with slices of `source` added along `dim`, at each of the places `index`."""
    added: torch.Tensor = _index_add(x, dim, _without_sign(index), source, alpha=alpha)
    return added


def index_copy(x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """`x` with slices of `source` along `dim` at each of the places `index`."""
    copied: torch.Tensor = _index_copy(x, dim, _without_sign(index), source)
    return copied


def _without_sign(index: torch.Tensor) -> torch.Tensor:
    return torch.bitwise_and(index, torch.iinfo(index.dtype).max)
