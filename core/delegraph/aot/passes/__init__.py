"""Graph passes: the interface, and how a pipeline of them is run on a program.

A pass edits the graph of a program in place. What is accepted wherever passes are: an `ExportPass`, or any callable
that takes a `torch.fx.GraphModule` and returns None or an object with a `graph_module` (ExecuTorch's and torch's
`PassResult`).
"""

from torch.fx.passes.infra.pass_base import PassResult

from delegraph.aot.passes.run import run_passes
from delegraph.interfaces.graph_pass import ExportPass, GraphPass, ProgramPass

__all__ = ["ExportPass", "GraphPass", "PassResult", "ProgramPass", "run_passes"]
