"""What the page takes as imported."""

import torch  # noqa: F401
from torch.fx import GraphModule, subgraph_rewriter  # noqa: F401
from torch.library import Library  # noqa: F401

from delegraph_executorch.exir.dialects._ops import bind_pattern_to_op  # noqa: F401
from delegraph_executorch.exir.pass_base import ExportPass, PassResult  # noqa: F401
