"""GraphModule -> the same, a contiguous copy before calls of kernels that take no other dim order."""

from __future__ import annotations

from typing import Any, ClassVar

from delegraph.aot import exir_ops
from delegraph_executorch.exir.pass_base import ExportPass, NodeMetadata, ProxyValue

__all__ = ["LegalizePortableDimOrderPass"]

_aten = exir_ops.edge.aten


class LegalizePortableDimOrderPass(ExportPass):
    """For programs that run on ExecuTorch's portable kernels: these operators read contiguous tensors alone there."""

    _target_ops: ClassVar[frozenset[Any]] = frozenset(
        {
            _aten._adaptive_avg_pool2d.default,
            _aten.avg_pool2d.default,
            _aten.expand_copy.default,
            _aten.mean.dim,
            _aten.sum.dim_IntList,
        }
    )

    def call_operator(self, op: Any, args: Any, kwargs: Any, meta: NodeMetadata) -> ProxyValue:
        """The call, on a contiguous copy where its argument is not contiguous."""
        source = args[0].data if args and isinstance(args[0], ProxyValue) else None
        usual = [] if source is None or op not in self._target_ops else list(range(source.dim()))
        if source is None or op not in self._target_ops or [int(d) for d in source.dim_order()] == usual:
            return super().call_operator(op, args, kwargs, meta)
        copied = super().call_operator(
            exir_ops.edge.dim_order_ops._to_dim_order_copy.default,
            (args[0],),
            {"dim_order": usual},
            NodeMetadata(args[0].node.meta),
        )
        return super().call_operator(op, (copied, *args[1:]), kwargs, meta)
