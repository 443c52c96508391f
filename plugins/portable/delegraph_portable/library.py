"""Kernels -> the library `portable`, which the modules of this package fill as `operators.py` says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from delegraph.interfaces import BoundCall, KernelContext, KernelLibrary
from delegraph.runtime.numpy_kernels.evaluate import as_array, function_call
from delegraph.runtime.numpy_kernels.prepared import (
    Array,
    Context,
    Scalar,
    content_dependent_kernel,
    prepared_kernel,
)
from delegraph.runtime.numpy_kernels.promotion import DType, check_result, compute_type
from delegraph.runtime.numpy_kernels.shapes import Shape, broadcast

from .operators import OPERATORS

library: Final = KernelLibrary("portable", OPERATORS)

kernel: Final = partial(prepared_kernel, library)
data_dependent: Final = partial(content_dependent_kernel, library)


def in_turn(*calls: BoundCall) -> BoundCall:
    """The call that makes all of them, in order."""
    if len(calls) == 1:
        return calls[0]

    def call() -> None:
        for part in calls:
            part()

    return call


def prepare_out(context: Context | KernelContext, out: Array, dtype: DType, shape: Shape, name: str = "out") -> Array:
    """`out` in `shape`, for a result of `dtype`. Raises `InvalidType` if that may not be cast to the dtype of `out`."""
    check_result(dtype, out, name)
    return context.resize(out, shape)


def broadcast_out(context: Context, out: Array, dtype: DType, *operands: Array | Scalar) -> Array:
    """As `prepare_out`, in the shape to which `operands` broadcast."""
    return prepare_out(context, out, dtype, broadcast(*map(np.shape, operands)))


def elementwise(
    context: Context, function: Callable[..., object], operands: Sequence[Array | Scalar], out: Array, dtype: DType
) -> BoundCall:
    """`function(*operands, out)`, all in the type that `dtype`, the result's, is computed in."""
    compute = compute_type(dtype)
    arrays = [as_array(operand, compute) for operand in operands]
    return function_call(context, function, arrays, broadcast_out(context, out, dtype, *arrays), compute)
