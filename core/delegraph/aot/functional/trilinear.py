"""Three tensors -> the sum of their product (`aten._trilinear`, which `nn.Bilinear` calls), as two contractions.

torch multiplies all three before it sums (`aten/src/ATen/native/Linear.cpp`), and has no decomposition. Contracting two
at a time, `nn.Bilinear` never makes its tensor of (batch, out, in1, in2).
"""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters

import torch

__all__ = ["trilinear"]


def trilinear(
    i1: torch.Tensor,
    i2: torch.Tensor,
    i3: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    """`i1 * i2 * i3` summed over `sumdim`, where `i1` lacks the dims `expand1` of the product, and so on.

    `unroll_dim` says where torch's own loop runs, and does not matter to the result.
    """
    rank = i1.dim() + len(expand1)
    first, second, third, result = ("".join(_letters(rank, lacks)) for lacks in (expand1, expand2, expand3, sumdim))
    between = "".join(d for d in _letters(rank, ()) if d in first + second and d in third + result)
    return torch.einsum(f"{between},{third}->{result}", torch.einsum(f"{first},{second}->{between}", i1, i2), i3)


def _letters(rank: int, lacks: Sequence[int]) -> list[str]:
    """The dims of an operand, by name."""
    missing = {dim % rank for dim in lacks}
    return [letter for dim, letter in enumerate(ascii_letters[:rank]) if dim not in missing]
