"""A tensor -> its leaky relu with a random slope (`aten.rrelu`), which torch defines by a call that writes its noise.

Outside of training the slope is the mean of the bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch._ops import OpOverload

__all__ = ["RRELU"]

_LOWER, _UPPER = 1 / 8, 1 / 3
"""The bounds of the schema."""


def _rrelu(
    x: torch.Tensor, lower: float = _LOWER, upper: float = _UPPER, training: bool = False, _generator: object = None
) -> torch.Tensor:
    """`x`, floats of any shape, its negative elements multiplied by a slope."""
    return _with_noise(x, x, lower, upper, training)[0]


def _with_noise(
    x: torch.Tensor,
    noise: torch.Tensor,
    lower: float = _LOWER,
    upper: float = _UPPER,
    training: bool = False,
    _generator: object = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same, and the slope of each element: 1 of positive ones, and `noise` as it is outside of training."""
    if not training:
        return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise
    slope = torch.where(x <= 0, torch.rand_like(x) * (upper - lower) + lower, 1.0)
    return x * slope, slope


RRELU: Final[dict[OpOverload, Callable[..., object]]] = {
    torch.ops.aten.rrelu.default: _rrelu,
    torch.ops.aten.rrelu_with_noise_functional.default: _with_noise,
}
