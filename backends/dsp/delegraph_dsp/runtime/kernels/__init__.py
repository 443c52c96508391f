"""Kernels, by name: importing this fills the table."""

from __future__ import annotations

from delegraph_dsp.runtime.kernels import indexing, pointwise, products, rows
from delegraph_dsp.runtime.kernels.table import TABLE, check_launch

__all__ = ["TABLE", "check_launch", "indexing", "pointwise", "products", "rows"]
