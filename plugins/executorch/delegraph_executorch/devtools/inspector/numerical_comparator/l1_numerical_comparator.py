"""Two values -> the sum of the absolute differences."""

from __future__ import annotations

import torch

from delegraph_executorch.devtools.inspector.numerical_comparator.numerical_comparator_base import TensorComparator

__all__ = ["L1Comparator"]


class L1Comparator(TensorComparator):
    """The gap is the sum of the absolute differences."""

    what = "L1 difference"

    def gap(self, reference: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """The gap, a tensor of one element."""
        return (reference - value).abs().sum()
