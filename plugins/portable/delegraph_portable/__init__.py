"""Kernels in NumPy for core ATen and what ExecuTorch registers: `delegraph_portable:library`. One room per family."""

from . import (  # noqa: F401  importing a family registers its kernels
    convolution,
    copies,
    creation,
    fourier,
    images,
    indexing,
    llm,
    matmul,
    normalization,
    pointwise,
    pooling,
    quantized,
    reductions,
    sorting,
)
from .creation.random import manual_seed
from .library import library

__all__ = ["library", "manual_seed"]
