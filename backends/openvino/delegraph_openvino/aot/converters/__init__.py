"""The table of converters: importing this package fills it, a module for each family of operators."""

from delegraph_openvino.aot.converters import (
    attention,
    convolution,
    creation,
    found_in_the_run,
    indexing,
    matmul,
    moves,
    normalization,
    pointwise,
    pooling,
    quantized,
    recurrent,
    reductions,
    resampling,
    sizes,
)
from delegraph_openvino.aot.table import TABLE

__all__ = [
    "TABLE",
    "attention",
    "convolution",
    "creation",
    "found_in_the_run",
    "indexing",
    "matmul",
    "moves",
    "normalization",
    "pointwise",
    "pooling",
    "quantized",
    "recurrent",
    "reductions",
    "resampling",
    "sizes",
]
