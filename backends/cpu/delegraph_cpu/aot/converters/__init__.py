"""The table of converters: which operators become ONNX, how, and when. One module per family."""

from delegraph_cpu.aot.converters import (  # noqa: F401
    attention,
    convolution,
    creation,
    indexing,
    matmul,
    normalization,
    pointwise,
    pooling,
    recurrent,
    reductions,
    shapes,
)
from delegraph_cpu.aot.converters.pooling import MAX_POOLS
from delegraph_cpu.aot.converters.table import CONVERTERS, Converter

__all__ = ["CONVERTERS", "MAX_POOLS", "Converter"]
