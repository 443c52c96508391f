"""Norms of vectors and distances between them: ‖x‖_p = (Σ |x|^p)^(1/p), with its limits for p of 0 and ±infinity."""

from __future__ import annotations

import math
from functools import partial
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import function_call, staged_call, staging_buffer
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import (
    check_floating,
    check_result,
    check_same_dtype,
    compute_type,
    is_integral,
    promote,
    real_type,
    requested_type,
    result_type,
)
from delegraph.runtime.numpy_kernels.shapes import Shape, broadcast, check_rank, reduced, reduction_axes

from ..library import kernel, prepare_out
from .reduce import Dims, reduce_with, sum_of_squares

_BLOCK: Final = 1 << 20  # differences that are held at once


def norm(p: float, x: Array, axes: Shape, out: Array, spare: Array) -> None:
    """Of `x` over `axes` into the real `out`, in which they have size 1; `spare` is as `x` and may be overwritten."""
    if p == 2:
        sum_of_squares(x, axes, out, spare)
        np.sqrt(out, out)
        return
    magnitudes = np.asarray(np.abs(x))
    if p == 0:
        out[...] = np.count_nonzero(magnitudes, axes, keepdims=True)
    elif math.isinf(p):
        reduce_with(np.maximum if p > 0 else np.minimum, magnitudes, axes, out)
    else:
        if p != 1:
            np.power(magnitudes, magnitudes.dtype.type(p), magnitudes)
        reduce_with(np.add, magnitudes, axes, out)
        if p != 1:
            np.power(out, out.dtype.type(1 / p), out)


def _order(p: Scalar, name: str) -> float:
    if isinstance(p, complex):
        raise InvalidArgument(f"argument {name!r} must be real, but is {p}")
    return float(p)


def _norm_call(context: Context, p: float, x: Array, axes: Shape, keepdim: bool, out: Array, spare: Array) -> BoundCall:
    """The norm of `x`, which is in its compute type."""
    if (p < 0 or p == math.inf) and any(x.shape[axis] == 0 for axis in axes):
        raise InvalidArgument(f"argument 'self' of shape {x.shape} has no norm of order {p} over the dims {list(axes)}")
    out = context.resize(out, reduced(x.shape, axes, keepdim))
    result = staging_buffer(context, out.reshape(reduced(x.shape, axes, True)), real_type(x.dtype))
    return staged_call(partial(norm, p, x, axes, result.buffer, spare), [], [result])


@kernel("aten::linalg_vector_norm.out")
def vector_norm(
    context: Context, self: Array, ord: Scalar, dim: Dims, keepdim: bool, dtype: int | None, out: Array
) -> BoundCall:
    """Real, also of complex numbers; over all elements if `dim` is None or empty."""
    if is_integral(self.dtype):
        raise InvalidType(f"argument 'self' must be floating-point or complex, but is {self.dtype}")
    wide = requested_type(dtype, self.dtype)
    if promote(self.dtype, wide) != wide:
        raise InvalidType(f"argument 'dtype' is {wide}, which is narrower than the {self.dtype} of argument 'self'")
    check_result(real_type(wide), out)
    source = staging_buffer(context, self, compute_type(wide))
    x = source.buffer
    spare = x if x is not self else context.workspace(x.shape, x.dtype)
    axes = reduction_axes(dim, self.ndim)
    return staged_call(_norm_call(context, _order(ord, "ord"), x, axes, keepdim, out, spare), [source], [])


@kernel("aten::dist.out")
def dist(context: Context, self: Array, other: Array, p: Scalar, out: Array) -> BoundCall:
    """The norm of self - other over all elements."""
    dtype = result_type(self, other)
    if is_integral(dtype):
        raise InvalidType(
            f"arguments 'self' {self.dtype} and 'other' {other.dtype}: one must be floating-point or complex"
        )
    check_result(real_type(dtype), out)
    compute = compute_type(dtype)
    difference = context.workspace(broadcast(self.shape, other.shape), compute)
    axes = tuple(range(difference.ndim))
    total = _norm_call(context, _order(p, "p"), difference, axes, False, out, difference)

    def call() -> None:
        np.subtract(self, other, difference, dtype=compute, casting="unsafe")
        total()

    return call


# ---- between rows -----------------------------------------------------------------------------------


@kernel("aten::_cdist_forward.out")
def cdist(context: Context, x1: Array, x2: Array, p: float, compute_mode: int | None, out: Array) -> BoundCall:
    """x1 (*, P, M) and x2 (*, R, M) -> (*, P, R). `compute_mode` would choose between ways to the same result."""
    _check(x1, "x1", p)
    check_same_dtype(x2, "x2", x1, "x1")
    if min(x1.ndim, x2.ndim) < 2 or x1.shape[-1] != x2.shape[-1]:
        raise InvalidArgument(f"arguments 'x1' {x1.shape} and 'x2' {x2.shape} do not have rows of one length")
    batch = broadcast(x1.shape[:-2], x2.shape[:-2])
    out = prepare_out(context, out, x1.dtype, (*batch, x1.shape[-2], x2.shape[-2]))
    return function_call(context, partial(_distances, p), (x1, x2), out, compute_type(x1.dtype))


@kernel("aten::_pdist_forward.out")
def pdist(context: Context, self: Array, p: float, out: Array) -> BoundCall:
    """Rows of self (N, M), each with each later one -> (N (N-1) / 2)."""
    _check(self, "self", p)
    check_rank(self, (2,), "self")
    n = self.shape[0]
    out = prepare_out(context, out, self.dtype, (n * (n - 1) // 2,))
    pairs = np.triu_indices(n, 1)

    def function(x: Array, result: Array) -> None:
        square = np.empty((n, n), x.dtype)
        _distances(p, x, x, square)
        np.copyto(result, square[pairs])

    return function_call(context, function, (self,), out, compute_type(self.dtype))


def _check(x: Array, name: str, p: float) -> None:
    check_floating(x, name)
    if not p >= 0:
        raise InvalidArgument(f"argument 'p' must not be negative, but is {p}")


def _distances(p: float, x1: Array, x2: Array, out: Array) -> None:
    """Some rows of `x1` at a time: all differences at once could fill the memory.

    The summed dim comes last, or before the rows where it is shorter: NumPy's inner loops are over the last dim.
    """
    if out.size == 0 or x1.shape[-1] == 0:
        out[...] = 0
        return
    axis = -3 if x1.shape[-1] < x2.shape[-2] else -1
    left, right, result = np.expand_dims(x1, -2), np.expand_dims(x2, -3), np.expand_dims(out, axis)
    if axis == -3:
        left, right = np.moveaxis(left, -1, -3), np.ascontiguousarray(np.moveaxis(right, -1, -3))
    width = out.size // x1.shape[-2] * x1.shape[-1]
    step = max(_BLOCK // width, 1)
    for i in range(0, x1.shape[-2], step):
        rows = (
            (..., slice(i, i + step), slice(None))
            if axis == -3
            else (..., slice(i, i + step), slice(None), slice(None))
        )
        differences = left[rows] - right
        if p == 0:  # how many there are, NaN if one is NaN, which other norms of order 0 count
            differences = np.sign(np.abs(differences))
        norm(p or 1, differences, (differences.ndim + axis,), result[rows], differences)
