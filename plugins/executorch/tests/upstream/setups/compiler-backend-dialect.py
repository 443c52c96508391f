"""What the page takes as imported."""

from torch.fx import GraphModule, subgraph_rewriter  # noqa: F401
from torch.library import Library  # noqa: F401

from delegraph_executorch.exir.dialects.backend._ops import BackendOpOverload  # noqa: F401
from delegraph_executorch.exir.dialects.edge._ops import EdgeOpOverload  # noqa: F401
from delegraph_executorch.exir.pass_base import ExportPass, PassResult  # noqa: F401
from delegraph_executorch.exir.passes.replace_aten_with_edge_pass import aten_to_edge  # noqa: F401
