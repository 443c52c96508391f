"""Program -> the same, copies that say their layout by a memory format made copies into a dim order: what kernels have.

    y = clone(x, memory_format=torch.channels_last)  ->  y = _to_dim_order_copy(x, dim_order=[0, 2, 3, 1])

`edge.memory_formats` is the way there; it is taken where a configuration asks for it.
"""

from __future__ import annotations

import torch
from torch.export import ExportedProgram

from delegraph.aot.edge.dialects import ATEN, Dialect
from delegraph.aot.graph.bodies import all_nodes
from delegraph.aot.graph.provenance import MEMORY_FORMAT
from delegraph.interfaces.graph_pass import ExportedProgramPassBase, ExportedProgramPassResult

__all__ = ["DimOrderCopies"]


class DimOrderCopies(ExportedProgramPassBase):
    """Undoes `EdgeCompileConfig(_skip_dim_order=True)` for what is left to kernels."""

    required_dialect: Dialect | None = ATEN

    def call(self, program: ExportedProgram) -> ExportedProgramPassResult:
        """Edit `program`, and the bodies of its control flow."""
        for node in all_nodes(program.graph_module):
            if MEMORY_FORMAT in node.meta:
                value = node.meta["val"]
                node.target = torch.ops.dim_order_ops._to_dim_order_copy.default
                node.kwargs = {"dtype": value.dtype, "dim_order": list(value.dim_order())}
        return ExportedProgramPassResult(program, True)
