"""Kernels in NumPy for core ATen and what ExecuTorch registers: `delegraph_portable:library`. One room per family."""

from . import (  # noqa: F401  importing a family registers its kernels
    cholesky,
    convolution,
    copies,
    creation,
    eigen,
    fourier,
    householder,
    images,
    indexing,
    ldl,
    lu,
    matmul,
    matrix_exponential,
    normalization,
    orthogonal_polynomials,
    pointwise,
    pooling,
    quantized,
    reductions,
    sorting,
    special_functions,
    triangular,
)
from .creation.random import manual_seed
from .library import library

__all__ = ["library", "manual_seed"]
