"""Operators that copy: what they give is what goes in, of another dtype or layout at most."""

from __future__ import annotations

from typing import Final

import torch

from delegraph.aot import exir_ops

__all__ = ["CASTS", "COPIES"]

_aten = torch.ops.aten

CASTS: Final = frozenset(
    {
        *(_aten._to_copy.default, _aten.to.dtype, _aten.to.dtype_layout, _aten.to.device, _aten.type_as.default),
        exir_ops.edge.dim_order_ops._to_dim_order_copy.default,
        exir_ops.edge.dim_order_ops._clone_dim_order.default,
    }
)
"""Those that may cast. Of a layout nothing is left within a delegate: it is onnxruntime's business."""

COPIES: Final = CASTS | {_aten.clone.default, _aten.alias.default, _aten.alias_copy.default}
