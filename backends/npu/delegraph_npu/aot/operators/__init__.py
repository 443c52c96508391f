"""The table of what the NPU computes, complete: importing this fills it."""

from delegraph_npu.aot.operators import elementwise, layers, moves, reductions
from delegraph_npu.aot.operators.table import OPERATORS, Annotate, Row, row_of, unfit_sizes

__all__ = ["OPERATORS", "Annotate", "Row", "elementwise", "layers", "moves", "reductions", "row_of", "unfit_sizes"]
