"""Matrices in the last two dims of tensors: checks, transposes and results, as all of linear algebra needs them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.runtime.kernels import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array
from delegraph.runtime.numpy_kernels.promotion import check_result, compute_type

_DTYPES = frozenset(map(np.dtype, (np.float32, np.float64, np.complex64, np.complex128)))


def check_matrix(array: Array, name: str, square: bool = False, halves: bool = False) -> None:
    """Raise `InvalidArgument` unless the argument is (*, m, n), or (*, n, n).

    Raise `InvalidType` unless it is of a dtype that LAPACK has, or of 16 bits where `halves` allows that.
    """
    check_shape_of_matrix(array, name, square)
    if (compute_type(array.dtype) if halves else array.dtype) not in _DTYPES:
        raise InvalidType(
            f"argument {name!r} must be of float32, float64, complex64 or complex128, but is {array.dtype}"
        )


def check_shape_of_matrix(array: Array, name: str, square: bool = False) -> None:
    """Raise `InvalidArgument` unless the argument is (*, m, n), or (*, n, n)."""
    if array.ndim < 2 or (square and array.shape[-1] != array.shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise InvalidArgument(f"argument {name!r} must hold {kind}, but has shape {array.shape}")


def adjoint(a: Array) -> Array:
    """(*, m, n) -> (*, n, m), conjugated."""
    return transpose(a).conj()


def transpose(a: Array) -> Array:
    return a.swapaxes(-1, -2)


def stacked_copy(a: Array) -> Array:
    """A copy in one batch dim: (*, m, n) -> (batch, m, n), C-contiguous."""
    return np.array(a, order="C").reshape(math.prod(a.shape[:-2]), *a.shape[-2:])


def diagonal(a: Array) -> Array:
    """A view: (*, m, n) -> (*, min(m, n)), which can be written."""
    k = min(a.shape[-2:])
    *batch, row, column = a.strides
    return np.lib.stride_tricks.as_strided(a, (*a.shape[:-2], k), (*batch, row + column))


def is_vector(a: Array, b: Array) -> bool:
    """Whether the right side `b` of a system with the matrices `a` holds one vector for each (NumPy's old rule)."""
    return b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])


def results_call(
    function: Callable[..., Sequence[Array]], operands: Sequence[Array], outs: Sequence[Array]
) -> BoundCall:
    """`function(*operands)`, whose results go into `outs`."""

    def call() -> None:
        for out, result in zip(outs, function(*operands), strict=True):
            np.copyto(out, result, casting="unsafe")

    return call


def check_results(self: Array, *outs: Array) -> None:
    """Raise `InvalidType` unless every output can hold `self`'s dtype."""
    for out in outs:
        check_result(self.dtype, out)


def check_info(info: Array, what: str, check_errors: bool) -> None:
    """Raise `InvalidArgument` if `check_errors` and a factorisation failed."""
    if check_errors and info.any():
        raise InvalidArgument(f"{what} (matrix {int(np.argmax(info != 0))} of the batch, at {int(info[info != 0][0])})")
