"""ExecuTorch's `executorch.devtools.inspector.numerical_comparator`: how far apart two values are."""

from __future__ import annotations

from delegraph_executorch.devtools.inspector.numerical_comparator.l1_numerical_comparator import L1Comparator
from delegraph_executorch.devtools.inspector.numerical_comparator.mse_numerical_comparator import MSEComparator
from delegraph_executorch.devtools.inspector.numerical_comparator.numerical_comparator_base import (
    IntermediateOutputMapping,
    NumericalComparatorBase,
)
from delegraph_executorch.devtools.inspector.numerical_comparator.snr_numerical_comparator import SNRComparator

__all__ = ["IntermediateOutputMapping", "L1Comparator", "MSEComparator", "NumericalComparatorBase", "SNRComparator"]
