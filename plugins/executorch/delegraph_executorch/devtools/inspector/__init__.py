"""ExecuTorch's `executorch.devtools.inspector`: where the time of a run went, and where its values left the model's."""

from delegraph_executorch.finding import row_names

__getattr__, __dir__ = row_names(__name__)
