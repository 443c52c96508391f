"""ExecuTorch's `executorch.devtools.inspector.numerical_comparator`: how far apart two values are."""

from delegraph_executorch.finding import row_names

__getattr__, __dir__ = row_names(__name__)
