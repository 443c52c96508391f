"""Named weights, and gradients of the same names -> the weights after a step of stochastic gradient descent, in place.

With d the gradient, w the weight and b what is remembered of earlier steps (ExecuTorch
`extension/training/optimizer/sgd.cpp`, torch `torch.optim.SGD`):

    d += weight_decay * w
    b  = d in the first step, momentum * b + (1 - dampening) * d from then on
    w -= lr * (d + momentum * b if nesterov else b)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ExecuTorchSGD", "get_sgd_optimizer"]


class ExecuTorchSGD:
    """What `get_sgd_optimizer` gives. Tensors are torch's or NumPy arrays."""

    def __init__(
        self,
        named_parameters: Mapping[str, Any],
        lr: float,
        momentum: float,
        dampening: float,
        weight_decay: float,
        nesterov: bool,
    ) -> None:
        self._weights = dict(named_parameters)
        self._lr, self._momentum, self._dampening = lr, momentum, dampening
        self._weight_decay, self._nesterov = weight_decay, nesterov
        self._buffers: dict[str, Any] = {}

    def step(self, named_gradients: Mapping[str, Any]) -> None:
        """Change each weight that has a gradient; the gradients stay as they are."""
        for name in self._weights.keys() & named_gradients.keys():
            weight = self._weights[name]
            weight -= self._lr * self._direction(name, weight, named_gradients[name])

    def _direction(self, name: str, weight: Any, gradient: Any) -> Any:
        if self._weight_decay:
            gradient = gradient + self._weight_decay * weight
        if not self._momentum:
            return gradient
        before = self._buffers.get(name)
        after = 1 * gradient if before is None else self._momentum * before + (1 - self._dampening) * gradient
        self._buffers[name] = after
        return gradient + self._momentum * after if self._nesterov else after


def get_sgd_optimizer(
    named_parameters: Mapping[str, Any],
    lr: float,
    momentum: float = 0,
    dampening: float = 0,
    weight_decay: float = 0,
    nesterov: bool = False,
) -> ExecuTorchSGD:
    """An optimizer that changes `named_parameters`, a `TrainingModule`'s, in place."""
    return ExecuTorchSGD(named_parameters, lr, momentum, dampening, weight_decay, nesterov)
