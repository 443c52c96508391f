"""Operators that take a memory format <-> those that take a dim order."""

from __future__ import annotations

from typing import Any, Final

from delegraph.aot import exir_ops

__all__ = ["DimOrderOpsMap", "MemoryFormatOpsMap"]

DimOrderOpsMap: Final[dict[Any, Any]] = {
    exir_ops.edge.aten._to_copy.default: exir_ops.edge.dim_order_ops._to_dim_order_copy.default,
    exir_ops.edge.aten.empty.memory_format: exir_ops.edge.dim_order_ops._empty_dim_order.default,
    exir_ops.edge.aten.clone.default: exir_ops.edge.dim_order_ops._clone_dim_order.default,
}
MemoryFormatOpsMap: Final[dict[Any, Any]] = {by_order: by_format for by_format, by_order in DimOrderOpsMap.items()}
