"""Two values -> the mean of the squared differences."""

from __future__ import annotations

from typing import Any

from delegraph_executorch.devtools.inspector._output_matching import convert_to_float_tensor
from delegraph_executorch.devtools.inspector.numerical_comparator.numerical_comparator_base import (
    NumericalComparatorBase,
)

__all__ = ["MSEComparator"]


class MSEComparator(NumericalComparatorBase):
    """The gap is the mean of the squared differences."""

    def element_compare(self, a: Any, b: Any) -> float:
        """The gap of two tensors or numbers. Raises `ValueError` for what is neither, or for shapes that do not fit."""
        one, other = convert_to_float_tensor(a), convert_to_float_tensor(b)
        try:
            return float((one - other).square().mean())
        except RuntimeError as error:
            raise ValueError(f"Error computing MSE difference between tensors: {error}") from error
