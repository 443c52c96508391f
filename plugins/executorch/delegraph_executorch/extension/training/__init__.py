"""ExecuTorch's `executorch.extension.training`: a training step that was lowered, and the optimizer behind it."""

from delegraph_executorch.extension.training.pybindings._training_lib import get_sgd_optimizer
from delegraph_executorch.extension.training.pybindings._training_module import (
    TrainingModule,
    _load_for_executorch_for_training,
    _load_for_executorch_for_training_from_buffer,
)

__all__ = [
    "TrainingModule",
    "_load_for_executorch_for_training",
    "_load_for_executorch_for_training_from_buffer",
    "get_sgd_optimizer",
]
