"""GraphModule -> the same, `sym_size`, `sym_stride` and `sym_numel` called by their overloads."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import GraphModule

from delegraph_executorch.exir.pass_base import PassBase, PassResult
from delegraph_executorch.exir.passes._retarget import retarget

__all__ = ["ReplaceSymSizeOpPass", "replacements"]

aten = torch.ops.aten
replacements: Final[dict[Any, Any]] = {
    aten.sym_size: aten.sym_size.int,
    aten.sym_stride: aten.sym_stride.int,
    aten.sym_numel: aten.sym_numel.default,
}


class ReplaceSymSizeOpPass(PassBase):
    """Names the overload, in place."""

    def call(self, graph_module: GraphModule) -> PassResult:
        """Look at each call, those of bodies too."""
        return retarget(graph_module, replacements)
