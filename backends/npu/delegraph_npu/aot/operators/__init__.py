"""The table of what the NPU computes, complete: importing this fills it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from delegraph_npu.aot.operators import elementwise, layers, moves, reductions
from delegraph_npu.aot.operators.table import OPERATORS, Annotate, Convert, Row, row_of, unfit_sizes

CONVERTERS: Final[Mapping[str, Convert]] = {name: row.convert for name, row in OPERATORS.items()}
"""`operator_name` -> what converts calls of it."""

__all__ = [
    "CONVERTERS",
    "OPERATORS",
    "Annotate",
    "Row",
    "elementwise",
    "layers",
    "moves",
    "reductions",
    "row_of",
    "unfit_sizes",
]
