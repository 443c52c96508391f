"""The simplest partitioners: nodes by their operator, and all nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import Node

from delegraph.interfaces import CompileSpec
from delegraph_partitioners.capability import CapabilityBasedPartitioner

__all__ = ["AllNodesPartitioner", "OperatorsPartitioner"]

Operator = str | torch._ops.OpOverload | torch._ops.OpOverloadPacket
"""Every overload: `"aten::add"`, `torch.ops.aten.add`; one: `"aten::add.Tensor"`, `torch.ops.aten.add.Tensor`."""


class OperatorsPartitioner(CapabilityBasedPartitioner):
    """Delegates calls of the given operators. Other parameters as `CapabilityBasedPartitioner`."""

    def __init__(
        self,
        backend_id: str,
        operators: Iterable[Operator],
        compile_specs: Sequence[CompileSpec] = (),
        **options: Any,
    ) -> None:
        self.names = frozenset(_name(operator) for operator in operators)
        super().__init__(backend_id, self._reason_by_name, compile_specs, **options)

    def _reason_by_name(self, node: Node) -> str | None:
        target = node.target
        if isinstance(target, torch._ops.OpOverload) and not self.names.isdisjoint(
            (target._schema.name, _name(target))
        ):
            return None
        return f"{_shown(target)} is not among the operators that {self.delegation_spec.backend_id} is given"


class AllNodesPartitioner(CapabilityBasedPartitioner):
    """Delegates every call. Other parameters as `CapabilityBasedPartitioner`."""

    def __init__(self, backend_id: str, compile_specs: Sequence[CompileSpec] = (), **options: Any) -> None:
        options = {"allow_trivial": True, "take_scalars": True, **options}
        super().__init__(backend_id, lambda node: None, compile_specs, **options)


def _name(operator: Operator) -> str:
    """`aten::add` for a packet, `aten::add.Tensor` for an overload; `.default` may be left out of a string."""
    if isinstance(operator, torch._ops.OpOverloadPacket):
        return operator._qualified_op_name
    if isinstance(operator, torch._ops.OpOverload):
        return f"{operator._schema.name}.{operator._overloadname}"
    return operator


def _shown(target: object) -> str:
    return _name(target) if isinstance(target, torch._ops.OpOverload) else str(getattr(target, "__name__", target))
