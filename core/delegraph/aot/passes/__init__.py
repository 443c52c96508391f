"""Graph passes: the interface, and how a pipeline of them is run on a program.

A pass edits the graph of a program in place, or traces it anew. What is accepted wherever passes are: any callable that
takes a `torch.fx.GraphModule` and returns None or an object with a `graph_module` (torch's `PassResult`), as an
`ExportPass` and a pass manager of torch's are; or an `ExportedProgramPassBase`.
"""

from torch.fx.passes.infra.pass_base import PassBase, PassResult

from delegraph.aot.passes.export_pass import ExportPass
from delegraph.aot.passes.proxy_value import PROTECTED_KEYS, NodeMetadata, ProxyValue
from delegraph.aot.passes.run import program_with_graph, run_passes
from delegraph.interfaces.graph_pass import ExportedProgramPassBase, ExportedProgramPassResult, GraphPass

__all__ = [
    "PROTECTED_KEYS",
    "ExportPass",
    "ExportedProgramPassBase",
    "ExportedProgramPassResult",
    "GraphPass",
    "NodeMetadata",
    "PassBase",
    "PassResult",
    "ProxyValue",
    "program_with_graph",
    "run_passes",
]
