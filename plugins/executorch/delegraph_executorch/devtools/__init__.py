"""ExecuTorch's `executorch.devtools`."""

from delegraph_executorch.finding import row_names

__getattr__, __dir__ = row_names(__name__)
