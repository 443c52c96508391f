"""The mask of an attention, whose content is known -> what it does: True or 0 is seen, False or -inf hidden."""

from __future__ import annotations

import math
from typing import Final

import torch

__all__ = ["hides_nothing", "only_shifts", "sees_in_every_row"]

MOST_SHIFT: Final = 16.0
"""Of two equal scores, one that is lowered by so much weighs less than the last bit of the other: exp(-16) < 2**-23."""


def hides_nothing(mask: torch.Tensor) -> bool:
    """Whether the attention is the same without `mask`, [..., rows, keys] of bools or of what is added to scores."""
    return bool(mask.all() if mask.dtype == torch.bool else (mask == 0).all())


def only_shifts(mask: torch.Tensor) -> bool:
    """Whether what is added to scores leaves each some weight, as biases of positions do: it hides none."""
    return mask.is_floating_point() and bool(mask.numel() == 0 or mask.max() - mask.min() < MOST_SHIFT)


def sees_in_every_row(mask: torch.Tensor) -> bool:
    """Whether each row sees something; torch gives 0 in the others, and a softmax NaN."""
    return bool((mask if mask.dtype == torch.bool else mask > -math.inf).any(-1).all())
