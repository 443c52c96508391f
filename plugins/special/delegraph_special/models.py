"""Models that call nothing but this library's operators, for the conformance kit: `(model, inputs)`.

The one module here that imports torch; no program needs it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

__all__ = ["factorisations", "special_functions"]


class SpecialFunctions(nn.Module):
    """Functions of each other's results."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        gamma = torch.lgamma(x)
        return gamma, torch.special.i0e(gamma), torch.special.erfcx(x), torch.digamma(x)


class Factorisations(nn.Module):
    """Of a matrix that is positive definite."""

    def forward(self, a: Tensor) -> tuple[Tensor, ...]:
        lower, _ = torch.linalg.cholesky_ex(a)
        return lower, torch.cholesky_inverse(lower)


def special_functions() -> tuple[nn.Module, list[tuple[Tensor, ...]]]:
    """Run on two inputs."""
    return SpecialFunctions(), [(torch.rand(3, 4) + 0.5,), (torch.rand(3, 4) + 2,)]


def factorisations() -> tuple[nn.Module, list[tuple[Tensor, ...]]]:
    """Run on two matrices."""
    roots = [torch.randn(4, 4) for _ in range(2)]
    return Factorisations(), [(root @ root.T + 4 * torch.eye(4),) for root in roots]
