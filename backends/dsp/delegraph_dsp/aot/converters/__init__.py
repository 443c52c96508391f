"""Operators -> kernels: importing this fills the table."""

from __future__ import annotations

from delegraph_dsp.aot.converters import indexing, pointwise, products, rows, views
from delegraph_dsp.aot.kernel_graph import TABLE

__all__ = ["TABLE", "indexing", "pointwise", "products", "rows", "views"]
