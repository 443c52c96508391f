"""What an attention's mask does, whose content is known: True or 0 is seen, False or -inf hidden."""

from __future__ import annotations

import math

import torch

__all__ = ["hides_nothing", "sees_in_every_row"]


def hides_nothing(mask: torch.Tensor) -> bool:
    """Whether the attention is the same without `mask`, [..., rows, keys] of bools or of what is added to scores."""
    return bool(mask.all() if mask.dtype == torch.bool else (mask == 0).all())


def sees_in_every_row(mask: torch.Tensor) -> bool:
    """Whether each row sees something; torch gives 0 in the others, and a softmax NaN."""
    return bool((mask if mask.dtype == torch.bool else mask > -math.inf).any(-1).all())
