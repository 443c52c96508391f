"""A program with a joint graph -> a `TrainingModule`: runs a step, and has its gradients and weights by name.

What the step's method returns is the model's outputs, gradients and weights, one after the other; constant methods of
the program say where each begins (`delegraph.aot`, `emission/training.py`). A weight is a view of the memory that the
next step reads, so an optimizer that changes it trains the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from delegraph.errors import InvalidState
from delegraph.program.schema import Buffer
from delegraph_executorch.extension.pybindings._portable_lib import (
    ExecuTorchModule,
    _load_for_executorch,
    _load_for_executorch_from_buffer,
)

__all__ = [
    "TrainingModule",
    "_load_for_executorch_for_training",
    "_load_for_executorch_for_training_from_buffer",
]


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
