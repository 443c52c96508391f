"""A training step's method -> methods that give a constant each: which of its results are gradients, which weights.

    forward                                  (loss, gradient of w, gradient of b, w, b)
    __et_training_gradients_index_forward    1
    __et_training_parameters_index_forward   3
    __et_training_fqn_forward                ("linear.weight", "linear.bias")

The names are ExecuTorch's (`exir/emit/_emit_program.py`), by which its `TrainingModule` tells the results apart.
"""

from __future__ import annotations

from collections.abc import Iterable

from delegraph.aot.graph.signature import MethodGraph

__all__ = ["training_methods"]


def training_methods(methods: Iterable[MethodGraph]) -> dict[str, object]:
    """Constant methods, by name, for those of `methods` that compute gradients of weights."""
    constants: dict[str, object] = {}
    for method in methods:
        signature = method.signature
        if signature.trained:
            last = len(signature.outputs)
            constants |= {
                f"__et_training_gradients_index_{method.name}": last - 2 * len(signature.trained),
                f"__et_training_parameters_index_{method.name}": last - len(signature.trained),
                f"__et_training_fqn_{method.name}": [signature.states[node].name for node in signature.trained],
            }
    return constants
