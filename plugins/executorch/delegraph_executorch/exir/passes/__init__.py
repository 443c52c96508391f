"""ExecuTorch's `executorch.exir.passes`: passes for code that was written for it.

New code on Delegraph needs none of them: lowering does what the rest of ExecuTorch's pipeline takes passes for.
"""

from delegraph_executorch.finding import row_names

__getattr__, __dir__ = row_names(__name__)
