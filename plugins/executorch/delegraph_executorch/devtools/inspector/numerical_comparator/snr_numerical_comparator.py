"""Two values -> ten times the logarithm of the signal's power over the difference's, in dB."""

from __future__ import annotations

from typing import Any

import torch

from delegraph_executorch.devtools.inspector._output_matching import convert_to_float_tensor
from delegraph_executorch.devtools.inspector.numerical_comparator.numerical_comparator_base import (
    NumericalComparatorBase,
)

__all__ = ["SNRComparator"]


class SNRComparator(NumericalComparatorBase):
    """The gap is ten times the logarithm of the signal's power over the difference's, in dB."""

    def element_compare(self, a: Any, b: Any) -> float:
        """The gap of two tensors or numbers. Raises `ValueError` for what is neither, or for shapes that do not fit."""
        one, other = convert_to_float_tensor(a), convert_to_float_tensor(b)
        try:
            return float(10 * torch.log10(one.square().mean() / (one - other).square().mean()))
        except RuntimeError as error:
            raise ValueError(f"Error computing SNR difference between tensors: {error}") from error
