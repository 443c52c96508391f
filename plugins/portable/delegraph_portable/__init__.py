"""Kernels in NumPy for ExecuTorch's portable operators: `delegraph_portable:library`. One module per family."""

from . import (  # noqa: F401  importing a family registers its kernels
    activations,
    arithmetic,
    compare,
    conversions,
    convolution,
    convolution_backward,
    copies,
    distance,
    factories,
    fourier,
    indexing,
    joining,
    matmul,
    normalization,
    padding,
    pointwise,
    pooling,
    randomness,
    reductions,
    resampling,
    sorting,
)
from .library import library

__all__ = ["library"]
