"""ExecuTorch's `executorch.extension.training`: a training step that was lowered, and the optimizer behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from delegraph.errors import InvalidState
from delegraph.program.schema import Buffer
from delegraph_executorch.extension.pybindings._portable_lib import (
    ExecuTorchModule,
    _load_for_executorch,
    _load_for_executorch_from_buffer,
)

#
# With d the gradient, w the weight and b what is remembered of earlier steps (ExecuTorch
# `extension/training/optimizer/sgd.cpp`, torch `torch.optim.SGD`):
#
#     d += weight_decay * w
#     b  = d in the first step, momentum * b + (1 - dampening) * d from then on
#     w -= lr * (d + momentum * b if nesterov else b)


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


#
# What the step's method returns is the model's outputs, gradients and weights, one after the other; constant methods of
# the program say where each begins (`delegraph.aot`, `emission/training.py`). A weight is a view of the memory that the
# next step reads, so an optimizer that changes it trains the model.


class TrainingModule:
    """A loaded program whose methods compute gradients. Tensors are torch's or NumPy's, as the inputs are."""

    gradients_method_prefix = "__et_training_gradients_index_"
    parameters_method_prefix = "__et_training_parameters_index_"
    fqn_method_prefix = "__et_training_fqn_"

    def __init__(self, module: ExecuTorchModule) -> None:
        self.model = module
        self.named_grads: dict[str, Any] | None = None
        self.named_params: dict[str, Any] | None = None

    def forward_backward(self, method_name: str, inputs: Sequence[Any]) -> list[Any]:
        """Run a step; the model's own outputs. Raises `NotFound` for a method that computes no gradients."""
        names, first_gradient, first_weight = (
            self.model.run_method(prefix + method_name)
            for prefix in (self.fqn_method_prefix, self.gradients_method_prefix, self.parameters_method_prefix)
        )
        results = self.model.run_method(method_name, inputs, clone_outputs=False)
        gradients, weights = first_gradient[0], first_weight[0]
        self.named_grads = dict(zip(names, deepcopy(results[gradients:weights]), strict=True))
        if self.named_params is None:
            self.named_params = dict(zip(names, results[weights:], strict=True))
        return deepcopy(results[:gradients])

    def named_gradients(self) -> dict[str, Any]:
        """The gradients of the last step, by the weights' names. Raises `InvalidState` before the first."""
        return _after_a_step(self.named_grads)

    def named_parameters(self) -> dict[str, Any]:
        """The weights, by name; changing one changes the model. Raises `InvalidState` before the first step."""
        return _after_a_step(self.named_params)


def _after_a_step(tensors: dict[str, Any] | None) -> dict[str, Any]:
    if tensors is None:
        raise InvalidState("there are no gradients and no weights yet: run a step first, with forward_backward(…)")
    return tensors


def _load_for_executorch_for_training(path: str) -> TrainingModule:
    """The training steps of the `.pte` at `path`."""
    return TrainingModule(_load_for_executorch(path))


def _load_for_executorch_for_training_from_buffer(buffer: Buffer) -> TrainingModule:
    """The training steps of the bytes of a `.pte`."""
    return TrainingModule(_load_for_executorch_from_buffer(buffer))
