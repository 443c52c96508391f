"""Models that call the operators, for the conformance kit: `(model, inputs)`, with which each is exported and run."""

from __future__ import annotations

import torch

from sample_name.operators import scaled_tanh


class ScaledTanh(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        twice: torch.Tensor = scaled_tanh(scaled_tanh(x, 2.0), 0.5)
        return twice


def scaled() -> tuple[torch.nn.Module, list[tuple[torch.Tensor, ...]]]:
    """Two calls, of which one reads what the other wrote; run on two inputs."""
    return ScaledTanh(), [(torch.randn(2, 3),), (torch.randn(2, 3),)]
