"""Kernels in NumPy for ExecuTorch's portable operators: `delegraph_portable:library`. One module per family."""

from . import (
    activations,
    arithmetic,
    compare,
    conversions,
    convolution,
    copies,
    factories,
    indexing,
    joining,
    matmul,
    normalization,
    pointwise,
    pooling,
    reductions,
)
from .library import library

__all__ = ["library"]
