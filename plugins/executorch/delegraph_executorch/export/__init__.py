"""ExecuTorch's `executorch.export`: a model and a recipe -> a program, by way of stages."""

from delegraph_executorch.finding import row_names

__getattr__, __dir__ = row_names(__name__)
