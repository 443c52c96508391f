"""torch's memory formats <-> dim orders, and edge programs whose layouts are said by memory formats.

    torch.contiguous_format     0, 1, 2 …
    torch.channels_last         0, 2, 3, 1
    torch.channels_last_3d      0, 2, 3, 4, 1

Edge programs say layouts by dim orders. For backends that know no `dim_order_ops` there is
`EdgeCompileConfig(_skip_dim_order=True)`, as in ExecuTorch: copies and empty tensors stay as torch has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch.export import ExportedProgram

from delegraph.aot.graph.bodies import all_nodes
from delegraph.aot.graph.provenance import MEMORY_FORMAT
from delegraph.errors import InvalidArgument

__all__ = ["get_dim_order", "get_memory_format", "keep_memory_formats"]

_CHANNELS_LAST: Final = {torch.channels_last: (0, 2, 3, 1), torch.channels_last_3d: (0, 2, 3, 4, 1)}
_FORMATS: Final = {order: memory_format for memory_format, order in _CHANNELS_LAST.items()}


def get_dim_order(memory_format: torch.memory_format | None, ndim: int) -> list[int] | None:
    """The order in which the `ndim` dims of a tensor in `memory_format` lie, the outermost first.

    None for `torch.preserve_format` or None, which keep what there is. Raises `InvalidArgument` for a format that
    tensors of `ndim` dims cannot have (ExecuTorch: `exir/dim_order_utils.py`).
    """
    if memory_format is None or memory_format == torch.preserve_format:
        return None
    if memory_format == torch.contiguous_format and ndim >= 0:
        return list(range(ndim))
    order = _CHANNELS_LAST.get(memory_format, ())
    if len(order) != ndim:
        raise InvalidArgument(f"a tensor of {ndim} dims cannot be in {memory_format}, which has {len(order)}")
    return list(order)


def get_memory_format(dim_order: Sequence[int] | None) -> torch.memory_format:
    """The memory format of tensors whose dims lie in this order, the outermost first; None keeps what there is.

    Raises `InvalidArgument` for an order that is neither contiguous nor channels last, of four dims or of five.
    """
    if dim_order is None:
        return torch.preserve_format
    order = tuple(dim_order)
    memory_format = torch.contiguous_format if order == tuple(range(len(order))) else _FORMATS.get(order)
    if memory_format is None:
        raise InvalidArgument(f"no memory format of torch has the dim order {list(order)}")
    return memory_format


def keep_memory_formats(program: ExportedProgram) -> ExportedProgram:
    """Mark the calls of a functional program, and with them whatever they are decomposed into later: in its edge
    program copies and empty tensors have a memory format."""
    for node in all_nodes(program.graph_module):
        if node.op == "call_function":
            node.meta[MEMORY_FORMAT] = True
    return program
