"""Two values -> ten times the logarithm of the signal's power over the difference's, in dB."""

from __future__ import annotations

import torch

from delegraph_executorch.devtools.inspector._metrics import signal_to_noise
from delegraph_executorch.devtools.inspector.numerical_comparator.numerical_comparator_base import TensorComparator

__all__ = ["SNRComparator"]


class SNRComparator(TensorComparator):
    """The gap is ten times the logarithm of the signal's power over the difference's, in dB."""

    what = "SNR difference"

    def gap(self, reference: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        """The gap, a tensor of one element."""
        return signal_to_noise(reference, value)
