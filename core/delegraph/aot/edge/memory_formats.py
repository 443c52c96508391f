"""Edge program -> the same, layouts said by torch's memory formats instead of dim orders.

    before                                                after
    y = _to_dim_order_copy(x, dim_order=[0, 2, 3, 1])     y = clone(x, memory_format=torch.channels_last)

For backends that know no `dim_order_ops`: `EdgeCompileConfig(_skip_dim_order=True)`, as in ExecuTorch. A dim order that
is no memory format of torch stays.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.edge.edge_ops import edge_operator
from delegraph.aot.graph.bodies import all_nodes
from delegraph.aot.graph.provenance import MEMORY_FORMAT

__all__ = ["use_memory_formats"]

aten = torch.ops.aten

_FORMATS: Final = {(0, 2, 3, 1): torch.channels_last, (0, 2, 3, 4, 1): torch.channels_last_3d}


def use_memory_formats(program: ExportedProgram) -> ExportedProgram:
    """Rewrite the copies of `program`, whose graphs are edited, and mark them: they stay so."""
    for node in all_nodes(program.graph_module):
        if node.target == torch.ops.dim_order_ops._to_dim_order_copy.default:
            _use_memory_format(node)
    return program


def _use_memory_format(node: Node) -> None:
    order: Any = tuple(node.kwargs["dim_order"])  # type: ignore[arg-type]
    memory_format = torch.contiguous_format if order == tuple(range(len(order))) else _FORMATS.get(order)
    if memory_format is None:
        return
    source, dtype = node.args[0], node.meta["val"].dtype
    assert isinstance(source, Node)
    casts = source.meta["val"].dtype != dtype
    node.target = edge_operator(aten._to_copy.default if casts else aten.clone.default)
    node.kwargs = {**({"dtype": dtype} if casts else {}), "memory_format": memory_format}
    node.meta[MEMORY_FORMAT] = True
