"""Two values -> the mean of the squared differences."""

from __future__ import annotations

import torch

from delegraph_executorch.devtools.inspector._metrics import squared_error
from delegraph_executorch.devtools.inspector.numerical_comparator.numerical_comparator_base import TensorComparator

__all__ = ["MSEComparator"]


class MSEComparator(TensorComparator):
    """The gap is the mean of the squared differences."""

    what = "MSE difference"

    def gap(self, reference: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """The gap, a tensor of one element."""
        return squared_error(reference, value)
