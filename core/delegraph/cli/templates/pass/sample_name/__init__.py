"""The pass SampleName for Delegraph: relu as clamp, for a device that has no relu."""

from __future__ import annotations

from typing import Any

from delegraph.aot import ExportPass, ProxyValue, exir_ops

__all__ = ["SampleNamePass"]

aten = exir_ops.edge.aten


class SampleNamePass(ExportPass):
    """Users write `transform_passes=["sample_name"]`; keyword parameters of `__init__` would be options."""

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: Any) -> ProxyValue:
        if op != aten.relu.default:
            return super().call_operator(op, args, kwargs, meta)
        return super().call_operator(aten.clamp.default, (args[0], 0.0), {}, meta)  # meta: where the call comes from
