"""Program -> the same, operands that the user wrote as numbers numbers again, for calls that are left to kernels.

    before, as edge programs have it                          after
    c = constant 2.0
    a = mul.Tensor(x, c)                                      a = mul.Scalar(x, 2)
    f = _to_dim_order_copy(i, dtype=float32)   i: int64
    b = mul.Tensor(f, d)                       d: 0.5         b = mul.Scalar(i, 0.5)
    t = scalar_tensor(n, dtype=float32)        n: symbolic
    s = mul.Tensor(x, t)                                      s = mul.Scalar(x, n)

Kernels promote dtypes themselves, and a call with a number reads no second tensor. `edge.tensor_operands` is the way
there; constants and casts that nothing reads any more are not emitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node
from torch.fx.node import Argument

from delegraph.aot.edge.dialects import ATEN, Dialect
from delegraph.aot.edge.tensor_operands import (
    ONE_DTYPE,
    SYMBOLS,
    constant_of,
    lifted_number,
    number_overload,
    python_kind,
)
from delegraph.aot.graph.bodies import all_nodes, graph_modules
from delegraph.aot.graph.fake_values import fake_value
from delegraph.aot.graph.provenance import OPERAND
from delegraph.aot.graph.signature import ResolvedSignature
from delegraph.interfaces.graph_pass import ExportedProgramPassBase, ExportedProgramPassResult

__all__ = ["NumberOperands"]

aten = torch.ops.aten

_CASTS: Final = frozenset({aten._to_copy.default, torch.ops.dim_order_ops._to_dim_order_copy.default})


class NumberOperands(ExportedProgramPassBase):
    """Calls overloads that take a number where the user gave one, on operands as the user gave them."""

    required_dialect: Dialect | None = ATEN

    def call(self, program: ExportedProgram) -> ExportedProgramPassResult:
        """Edit `program`, and the bodies of its control flow."""
        numbers = _numbers(program)
        for _, module in graph_modules(program.graph_module):
            for node in module.graph.nodes:
                if node.op == "call_function" and isinstance(node.target, OpOverload):
                    _rewrite(node, node.target, numbers)
            for node in reversed(module.graph.nodes):
                if OPERAND in node.meta and node.op == "call_function" and not node.users:
                    module.graph.erase_node(node)
        return ExportedProgramPassResult(program, modified=True)


def _numbers(program: ExportedProgram) -> dict[Node, Argument]:
    """Nodes that stand for a number -> that number: a Python number, or the node of a symbolic one."""
    constants = {node: stored.tensor for node, stored in ResolvedSignature.of(program).constants.items()}
    numbers: dict[Node, Argument] = {}
    for node in all_nodes(program.graph_module):
        if _is_symbolic(node):
            numbers[node] = node.args[0]
            continue
        number = lifted_number(node)
        changed = node in constants and not _holds(constants[node], number)
        if number is not None and not isinstance(number, complex) and not changed:  # a file holds no complex number
            numbers[node] = number
    return numbers


def _is_symbolic(node: Node) -> bool:
    return OPERAND in node.meta and node.target == aten.scalar_tensor.default


def _holds(tensor: torch.Tensor, number: complex | None) -> bool:
    """Whether `tensor`, once made of `number`, still is that: a pass may have changed it."""
    return number is None or (
        tensor.dim() == 0 and repr(tensor.item()) == repr(constant_of(number, tensor.dtype).item())  # nan as well
    )


def _rewrite(node: Node, op: OpOverload, numbers: Mapping[Node, Argument]) -> None:
    """`mul.Tensor(cast of i, c)` -> `mul.Scalar(i, 0.5)`, where that computes in the same dtype."""
    if (op not in ONE_DTYPE and number_overload(op) is None) or len(node.args) < 2:
        return
    first, second = node.args[:2]
    overload = number_overload(op)
    number = None if overload is None or first in numbers or not isinstance(second, Node) else numbers.get(second)
    operands = (_uncast(first), _uncast(second) if number is None else number)
    if operands == (first, second) or _common_dtype(op, *operands) != _common_dtype(op, first, second):
        return
    node.args = (*operands, *node.args[2:])
    if overload is not None and number is not None:
        node.target = overload
        if "alpha" in node.kwargs:  # keyword-only with a tensor, positional with a number
            node.args, node.kwargs = (*node.args, node.kwargs["alpha"]), {}


def _uncast(operand: Argument) -> Argument:
    """The operand before it was cast to the others' dtype."""
    if isinstance(operand, Node) and operand.target in _CASTS and OPERAND in operand.meta:
        return operand.args[0]
    return operand


def _common_dtype(op: OpOverload, first: Argument, second: Argument) -> torch.dtype:
    """The dtype that `op` computes in."""
    dtype = torch.result_type(_typed(first), _typed(second))
    if op == aten.div.Tensor and not (dtype.is_floating_point or dtype.is_complex):
        return torch.get_default_dtype()
    return dtype


def _typed(operand: Argument) -> complex | torch.Tensor:
    """A value that promotes as `operand` does."""
    value = fake_value(operand) if isinstance(operand, Node) else operand
    assert isinstance(value, (int, float, complex, torch.Tensor, *SYMBOLS))
    return python_kind(value)(1) if isinstance(value, SYMBOLS) else value
