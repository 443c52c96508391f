"""Program -> the same, copies and empty tensors as kernels have them: none that changes nothing, and `dim_order_ops`
only where the dim order is not the argument's, or not the usual one.

    before, as edge programs have it                                    after
    a = _clone_dim_order(x, dim_order=[0, 1])                           x
    b = _to_dim_order_copy(x, dtype=float64, dim_order=[0, 1])          b = _to_copy(x, dtype=float64)
    c = _clone_dim_order(y, dim_order=[0, 2, 3, 1])   y: 0, 1, 2, 3     c = _to_dim_order_copy(y, …, [0, 2, 3, 1])
    d = clone(y, memory_format=torch.channels_last)                     d = _to_dim_order_copy(y, …, [0, 2, 3, 1])
    e = _empty_dim_order([2, 3], dim_order=[0, 1])                      e = empty.memory_format([2, 3])

ExecuTorch writes all of them as they stand in the edge program; a program without them is smaller and runs faster, and
its kernels are there in either runtime.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.export import ExportedProgram
from torch.fx import Node

from delegraph.aot.edge.dialects import ATEN, Dialect
from delegraph.aot.edge.dim_order_ops import BY_DIM_ORDER, dim_order
from delegraph.aot.graph.bodies import all_nodes, attributes
from delegraph.aot.graph.edit import with_graph
from delegraph.aot.graph.fake_values import fake_tensor
from delegraph.interfaces.graph_pass import ExportedProgramPassBase, ExportedProgramPassResult

__all__ = ["KernelCopies"]

aten = torch.ops.aten
_dim_order_ops = torch.ops.dim_order_ops

_EMPTY: Final = frozenset({aten.empty.memory_format, BY_DIM_ORDER[aten.empty.memory_format]})
_COPIES: Final = frozenset({*BY_DIM_ORDER, *BY_DIM_ORDER.values()}) - _EMPTY


class KernelCopies(ExportedProgramPassBase):
    """Undoes what the edge dialect has for backends' sake, for what is left to kernels."""

    required_dialect: Dialect | None = ATEN

    def call(self, program: ExportedProgram) -> ExportedProgramPassResult:
        """Edit `program`, and the bodies of its control flow."""
        erased = False
        for node in list(all_nodes(program.graph_module)):
            if node.target in _COPIES:
                erased = _rewrite_copy(node) or erased
            elif node.target in _EMPTY:
                _rewrite_empty(node)
        if erased:  # an output may have another name now
            program = with_graph(program, attributes(program.graph_module), program.graph)
        return ExportedProgramPassResult(program, True)


def _rewrite_copy(node: Node) -> bool:
    """Whether `node` is erased: it would only repeat its argument."""
    source = node.args[0]
    assert isinstance(source, Node)
    old, new = fake_tensor(source), fake_tensor(node)
    order = dim_order(new)
    if order != dim_order(old):
        node.target = _dim_order_ops._to_dim_order_copy.default
        node.kwargs = {"dtype": new.dtype, "dim_order": list(order)}
    elif new.dtype != old.dtype:
        node.target, node.kwargs = aten._to_copy.default, {"dtype": new.dtype}
    else:
        node.replace_all_uses_with(source)
        node.graph.erase_node(node)
        return True
    return False


def _rewrite_empty(node: Node) -> None:
    value = node.meta["val"]
    order = list(dim_order(value))
    node.target, node.kwargs = aten.empty.memory_format, {"dtype": value.dtype}
    if order != sorted(order):
        node.target, node.kwargs = _dim_order_ops._empty_dim_order.default, {"dtype": value.dtype, "dim_order": order}
