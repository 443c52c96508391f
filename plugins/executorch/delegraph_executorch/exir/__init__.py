"""Lowering, its settings and managers (ExecuTorch's `executorch.exir`). Each name is imported when it is first used."""

from delegraph_executorch.finding import row_names

__getattr__, __dir__ = row_names(__name__)
