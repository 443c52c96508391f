"""Matrices in the last two dims of tensors: checks, transposes, batches and results, as all of linear algebra needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array
from delegraph.runtime.numpy_kernels.promotion import check_result, check_same_dtype, compute_type
from delegraph.runtime.numpy_kernels.shapes import Shape, broadcast

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


def solution_shape(a: Array, a_name: str, b: Array, b_name: str, left: bool = True) -> Shape:
    """The shape of X in A X = B, or in X A = B."""
    check_matrix(a, a_name, square=True)
    check_matrix(b, b_name)
    check_same_dtype(b, b_name, a, a_name)
    if a.shape[-1] != b.shape[-2 if left else -1]:
        raise InvalidArgument(f"arguments {a_name!r} {a.shape} and {b_name!r} {b.shape} do not fit together")
    return (*broadcast(a.shape[:-2], b.shape[:-2]), *b.shape[-2:])


def adjoint(a: Array) -> Array:
    """(*, m, n) -> (*, n, m), conjugated."""
    return transpose(a).conj()


def transpose(a: Array) -> Array:
    return a.swapaxes(-1, -2)


def diagonal(a: Array) -> Array:
    """A view: (*, m, n) -> (*, min(m, n)), which can be written."""
    k = min(a.shape[-2:])
    *batch, row, column = a.strides
    return np.lib.stride_tricks.as_strided(a, (*a.shape[:-2], k), (*batch, row + column))


def is_vector(a: Array, b: Array) -> bool:
    """Whether the right side `b` of a system with the matrices `a` holds one vector for each (NumPy's old rule)."""
    return b.ndim == 1 or (a.ndim - 1 == b.ndim and b.shape == a.shape[:-1])


def places(stack: Array) -> Iterator[tuple[int, ...]]:
    """The index of each matrix in a stack (*, m, n); of none where they have no elements, which LAPACK refuses."""
    return iter(np.ndindex(stack.shape[:-2]) if stack.size else ())


def solve_each(solve: Callable[..., Array], b: Array, *stacks: Array) -> Array:
    """`solve(b, *others)` of each right side in `b` (*, n, k), with the others' matrices or vectors; batches broadcast.

    `stacks` are (*, n, n), and after the first (*, n).
    """
    batch = np.broadcast_shapes(b.shape[:-2], stacks[0].shape[:-2])
    rank = len(stacks[0].shape[:-2])
    x = np.empty((*batch, *b.shape[-2:]), b.dtype)
    spread = [np.broadcast_to(b, x.shape), *(np.broadcast_to(s, (*batch, *s.shape[rank:])) for s in stacks)]
    for at in places(x):
        x[at] = solve(*(stack[at] for stack in spread))
    return x


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
