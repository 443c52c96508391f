"""ATen operators -> the same as edge programs call them."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload

from delegraph.aot import EdgeOpOverload, exir_ops
from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue
from delegraph_executorch.exir.passes.executorch_prim_ops_registry import is_sym_op

__all__ = ["OpReplacePass", "aten_to_edge", "should_lower_to_edge"]

aten = torch.ops.aten
DISALLOW_LIST = [aten._assert_scalar.default, aten._assert_async.msg, aten.scalar_tensor.default]


def aten_to_edge(aten_op: OpOverload) -> EdgeOpOverload:
    """The edge operator of an ATen or custom operator."""
    namespace, _, name = aten_op._schema.name.partition("::")
    found: EdgeOpOverload = getattr(getattr(getattr(exir_ops.edge, namespace), name), aten_op._overloadname)
    return found


def should_lower_to_edge(op: Any) -> bool:
    """Whether edge programs call `op` by an edge operator: not operators on symbols, not assertions."""
    return isinstance(op, OpOverload) and not is_sym_op(op) and op not in DISALLOW_LIST


class OpReplacePass(ExportPass):
    """Calls edge operators where torch's were called."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, of the edge operator."""
        return super().call_operator(aten_to_edge(op) if should_lower_to_edge(op) else op, args, kwargs, meta)
