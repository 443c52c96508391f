"""ExecuTorch's `executorch.extension.training`: a training step that was lowered, and the optimizer behind it."""

from delegraph_executorch.finding import row_names

__getattr__, __dir__ = row_names(__name__)
