"""Kernels -> the library `special`, which the modules of this package fill as `operators.py` says.

Importing SciPy takes longer than everything else that a program's start needs, and most programs need none of these
kernels. So kernels ask for SciPy here when they are prepared, which is when a method that calls them is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any, Final

from delegraph.interfaces import KernelLibrary
from delegraph.runtime.numpy_kernels.prepared import prepared_kernel
from delegraph.runtime.numpy_kernels.promotion import DType

from .operators import OPERATORS

library: Final = KernelLibrary("special", OPERATORS)

kernel: Final = partial(prepared_kernel, library)

Routine = Callable[..., Any]


@cache
def lapack(name: str, dtype: DType) -> Routine:
    """LAPACK's routine for matrices of `dtype`, which may be float32, float64, complex64 or complex128."""
    from scipy.linalg import get_lapack_funcs

    routine: Routine = get_lapack_funcs(name, dtype=dtype)
    return routine


@cache
def blas(name: str, dtype: DType) -> Routine:
    """The routine of BLAS, as `lapack`."""
    from scipy.linalg import get_blas_funcs

    routine: Routine = get_blas_funcs(name, dtype=dtype)
    return routine


def scipy_special() -> ModuleType:
    """scipy.special."""
    from scipy import special

    module: ModuleType = special
    return module
