"""Matrix products, through BLAS where the dtype is float32 or float64."""

from __future__ import annotations

from functools import partial

import numpy as np

from delegraph.errors import InvalidArgument
from delegraph.runtime.kernels import BoundCall

from .evaluate import as_array, function_call
from .library import Array, Context, Scalar, kernel
from .promotion import check_same_dtype, compute_type
from .shapes import check_broadcasts, check_rank


def _check_operands(a: Array, a_name: str, b: Array, b_name: str, rank: int) -> None:
    check_rank(a, (rank,), a_name)
    check_rank(b, (rank,), b_name)
    check_same_dtype(a, a_name, b, b_name)
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise InvalidArgument(f"arguments {a_name!r} {a.shape} and {b_name!r} {b.shape} cannot be multiplied")


def _product(rank: int, context: Context, self: Array, mat2: Array, out: Array) -> BoundCall:
    _check_operands(self, "self", mat2, "mat2", rank)
    check_same_dtype(out, "out", self, "self")
    out = context.resize(out, (*self.shape[:-1], mat2.shape[-1]))
    return function_call(context, np.matmul, (self, mat2), out, compute_type(self.dtype))


kernel("aten::mm.out")(partial(_product, 2))
kernel("aten::bmm.out")(partial(_product, 3))


@kernel("aten::addmm.out")
def addmm(
    context: Context, self: Array, mat1: Array, mat2: Array, beta: Scalar, alpha: Scalar, out: Array
) -> BoundCall:
    """beta * self + alpha * (mat1 @ mat2); `self` is ignored, NaN and all, if beta is 0."""
    _check_operands(mat1, "mat1", mat2, "mat2", 2)
    check_same_dtype(self, "self", mat1, "mat1")
    check_same_dtype(out, "out", self, "self")
    shape = (mat1.shape[0], mat2.shape[1])
    check_broadcasts(self, shape, "self")
    out = context.resize(out, shape)
    compute = compute_type(self.dtype)
    if beta == 1 and alpha == 1:
        return function_call(context, _multiply_add, (mat1, mat2, self), out, compute)
    combine = partial(_combine, as_array(beta, compute), as_array(alpha, compute))
    return function_call(context, combine, (mat1, mat2, self), out, compute)


def _multiply_add(a: Array, b: Array, addend: Array, out: Array) -> None:
    np.matmul(a, b, out)
    np.add(out, addend, out)


def _combine(beta: Array, alpha: Array, a: Array, b: Array, addend: Array, out: Array) -> None:
    np.matmul(a, b, out)
    np.multiply(out, alpha, out)
    if beta:
        np.add(out, addend * beta, out)


@kernel("aten::linear.out")
def linear(context: Context, input: Array, weight: Array, bias: Array | None, out: Array) -> BoundCall:
    """input (*, in) with weight (out, in) and bias (out) -> (*, out)."""
    check_rank(weight, (2,), "weight")
    check_same_dtype(weight, "weight", input, "input")
    if input.ndim == 0 or input.shape[-1] != weight.shape[1]:
        raise InvalidArgument(f"arguments 'input' {input.shape} and 'weight' {weight.shape} cannot be multiplied")
    out = context.resize(out, (*input.shape[:-1], weight.shape[0]))
    compute = compute_type(input.dtype)
    rows, result = _as_matrices(input, out)
    if bias is None:
        return function_call(context, np.matmul, (rows, weight.T), result, compute)
    return function_call(context, _multiply_add, (rows, weight.T, bias), result, compute)


def _as_matrices(x: Array, y: Array) -> tuple[Array, Array]:
    """Both as one matrix where that needs no copy: one product instead of one for each leading index."""
    if x.ndim > 2 and x.size and y.size and x.flags.c_contiguous and y.flags.c_contiguous:
        return x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    return x, y
