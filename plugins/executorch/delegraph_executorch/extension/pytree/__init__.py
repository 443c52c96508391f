"""ExecuTorch's `executorch.extension.pytree`: torch's own pytree, as in ExecuTorch's wheels."""

from delegraph_executorch.finding import row_names

__getattr__, __dir__ = row_names(__name__)
