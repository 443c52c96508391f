"""Program -> the same, powers of symbolic numbers, which no runtime has, computed on tensors of one element.

    before                                        after
    s = operator.pow(n, 0.5)     n: a size        t = scalar_tensor(n, dtype=float64)
                                                  p = pow.Tensor_Tensor(t, scalar_tensor(0.5))
                                                  s = _local_scalar_dense(p)

ExecuTorch's runtime has arithmetic of numbers alone (`executorch_prim`), and kernels have the rest. A scale by the root
of a dynamic size is such a number: attention's, where its last dim is dynamic.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import Argument

from delegraph.aot.edge.dialects import ATEN, Dialect
from delegraph.aot.functional.functionalize import fake_mode_of
from delegraph.aot.graph.bodies import all_nodes
from delegraph.interfaces.graph_pass import ExportedProgramPassBase, ExportedProgramPassResult

__all__ = ["SymbolicPowers"]

aten = torch.ops.aten


class SymbolicPowers(ExportedProgramPassBase):
    """Computes powers of symbolic numbers by kernels, but for those that are products."""

    required_dialect: Dialect | None = ATEN

    def call(self, program: ExportedProgram) -> ExportedProgramPassResult:
        """Edit `program`, and the bodies of its control flow."""
        powers = [node for node in all_nodes(program.graph_module) if _is_power(node)]
        if powers:
            with fake_mode_of(program):
                elements = {dtype: torch.empty((), dtype=dtype) for dtype in (torch.int64, torch.float64)}
            for node in powers:
                is_whole = isinstance(node.meta["val"], int | torch.SymInt)
                _rewrite(node, elements[torch.int64 if is_whole else torch.float64])
        return ExportedProgramPassResult(program, bool(powers))


def _is_power(node: Node) -> bool:
    """Whether it is a power of a number that is no product: `emission.symbolic_scalars` makes those."""
    exponent = node.args[1] if node.target is operator.pow else 1
    return not (isinstance(exponent, int) and exponent >= 1)


def _rewrite(node: Node, element: torch.Tensor) -> None:
    def called(target: OpOverload, args: Sequence[Argument], **kwargs: Argument) -> Node:
        call = node.graph.call_function(target, tuple(args), kwargs)
        call.meta = node.meta | {"val": element}
        return call

    with node.graph.inserting_before(node):
        tensors = [called(aten.scalar_tensor.default, [number], dtype=element.dtype) for number in node.args]
        result = called(aten.pow.Tensor_Tensor, tensors)
    node.target, node.args, node.kwargs = aten._local_scalar_dense.default, (result,), {}
