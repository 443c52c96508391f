"""The kernels of ACME's operators: they write into planned memory, and need NumPy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegraph.interfaces import KernelContext


def scaled(context: KernelContext, x: NDArray[Any], factor: float, out: NDArray[Any]) -> None:
    """Any dtype and dim order: `factor x`, rounded to the dtype of `out`."""
    np.multiply(x, factor, out=context.resize(out, x.shape), casting="unsafe")


def scaled_contiguous(context: KernelContext, x: NDArray[Any], factor: float, out: NDArray[Any]) -> None:
    """Contiguous floating-point matrices."""
    np.multiply(x, x.dtype.type(factor), out=context.resize(out, x.shape))


def update_cache(
    context: KernelContext, cache: NDArray[Any], row: NDArray[Any], position: NDArray[np.int64], out: NDArray[Any]
) -> None:
    """`cache` is changed in place, as torch's operator does it; `out` is what that returns."""
    cache[position] = row
    np.sum(cache[: int(position) + 1], axis=0, out=context.resize(out, row.shape))
