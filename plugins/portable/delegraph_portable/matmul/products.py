"""Matrix products, through BLAS where the dtype is float32 or float64, complex or not."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import as_array, function_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import (
    FLOAT32,
    FLOAT64,
    check_same_dtype,
    check_same_kind,
    compute_type,
    requested_type,
)
from delegraph.runtime.numpy_kernels.shapes import Shape, check_broadcasts, check_rank

from ..library import in_turn, kernel, prepare_out
from ..pointwise.activations import gelu, relu


def _check_operands(a: Array, a_name: str, b: Array, b_name: str, rank: int) -> None:
    check_rank(a, (rank,), a_name)
    check_rank(b, (rank,), b_name)
    check_same_dtype(a, a_name, b, b_name)
    if a.shape[-1] != b.shape[-2] or a.shape[:-2] != b.shape[:-2]:
        raise InvalidArgument(f"arguments {a_name!r} {a.shape} and {b_name!r} {b.shape} cannot be multiplied")


def _product(rank: int, context: Context, self: Array, mat2: Array, out: Array) -> BoundCall:
    check_same_dtype(out, "out", self, "self")
    return _product_into(rank, context, self, mat2, out)


def _product_into(rank: int, context: Context, self: Array, mat2: Array, out: Array) -> BoundCall:
    _check_operands(self, "self", mat2, "mat2", rank)
    out = context.resize(out, (*self.shape[:-1], mat2.shape[-1]))
    return function_call(context, np.matmul, (self, mat2), out, compute_type(self.dtype))


kernel("aten::mm.out")(partial(_product, 2))
kernel("aten::bmm.out")(partial(_product, 3))


def _check_out_dtype(self: Array, out_dtype: int, out: Array) -> None:
    """A product of halves may be given as float32, in which it is summed."""
    dtype = requested_type(out_dtype, self.dtype)
    if dtype != self.dtype and (dtype != FLOAT32 or compute_type(self.dtype) != FLOAT32):
        raise InvalidType(f"argument 'out_dtype' is {dtype}, but a product of {self.dtype} has that dtype or float32")
    if out.dtype != dtype:
        raise InvalidType(f"argument 'out' is {out.dtype}, but argument 'out_dtype' is {dtype}")


def _product_as(rank: int, context: Context, self: Array, mat2: Array, out_dtype: int, out: Array) -> BoundCall:
    _check_out_dtype(self, out_dtype, out)
    return _product_into(rank, context, self, mat2, out)


kernel("aten::mm.dtype_out")(partial(_product_as, 2))
kernel("aten::bmm.dtype_out")(partial(_product_as, 3))


@kernel("aten::_int_mm.out")
def int_mm(context: Context, self: Array, mat2: Array, out: Array) -> BoundCall:
    """(n, k) and (k, m) of 8 bits -> (n, m) int32."""
    check_rank(self, (2,), "self")
    check_rank(mat2, (2,), "mat2")
    if self.shape[1] != mat2.shape[0]:
        raise InvalidArgument(f"arguments 'self' {self.shape} and 'mat2' {mat2.shape} cannot be multiplied")
    for array, name, allowed in (
        (self, "self", (np.int8, np.uint8)),
        (mat2, "mat2", (np.int8,)),
        (out, "out", (np.int32,)),
    ):
        if array.dtype not in allowed:
            raise InvalidType(
                f"argument {name!r} is {array.dtype}, but must be {' or '.join(d.__name__ for d in allowed)}"
            )
    out = context.resize(out, (self.shape[0], mat2.shape[1]))
    exact = FLOAT32 if self.shape[1] * _LARGEST_PRODUCT <= 1 << 24 else FLOAT64
    return function_call(context, np.matmul, (self, mat2), out, exact)


_LARGEST_PRODUCT: Final = 255 * 128
"""Sums up to 2²⁴ are exact in float32, and all int32 numbers in float64: BLAS has no products of integers."""


# ---- products and a sum -----------------------------------------------------------------------------


Function = Callable[..., object]


def _sum_call(
    context: Context,
    product: Function,
    operands: tuple[Array, Array],
    self: Array,
    beta: Scalar,
    alpha: Scalar,
    out: Array,
    shape: Shape,
) -> BoundCall:
    """beta * self + alpha * product(*operands) in `shape`; `self` is ignored, NaN and all, if beta is 0.

    Both factors become of the tensors' dtype: in integers 0.6 is 0.
    """
    check_broadcasts(self, shape, "self")
    out = context.resize(out, shape)
    compute = compute_type(operands[0].dtype)
    if beta == 1 and alpha == 1:  # nearly every call: two passes over the memory of `out` fewer
        return function_call(context, partial(_add, product), (*operands, self), out, compute)
    combine = partial(_combine, product, as_array(beta, compute), as_array(alpha, compute))
    return function_call(context, combine, (*operands, self), out, compute)


def _add(product: Function, a: Array, b: Array, addend: Array, out: Array) -> None:
    product(a, b, out)
    np.add(out, addend, out)


def _combine(product: Function, beta: Array, alpha: Array, a: Array, b: Array, addend: Array, out: Array) -> None:
    product(a, b, out)
    np.multiply(out, alpha, out)
    if beta:  # 0 * NaN would be NaN, and torch ignores the addend then
        np.add(out, addend * beta, out)


@kernel("aten::addmm.out")
def addmm(
    context: Context, self: Array, mat1: Array, mat2: Array, beta: Scalar, alpha: Scalar, out: Array
) -> BoundCall:
    """beta * self + alpha * (mat1 @ mat2); `self` is ignored, NaN and all, if beta is 0."""
    check_same_dtype(out, "out", self, "self")
    return _addmm(context, self, mat1, mat2, beta, alpha, out)


def _addmm(
    context: Context, self: Array, mat1: Array, mat2: Array, beta: Scalar, alpha: Scalar, out: Array
) -> BoundCall:
    _check_operands(mat1, "mat1", mat2, "mat2", 2)
    check_same_dtype(self, "self", mat1, "mat1")
    shape = (mat1.shape[0], mat2.shape[1])
    return _sum_call(context, np.matmul, (mat1, mat2), self, beta, alpha, out, shape)


@kernel("aten::addmm.dtype_out")
def addmm_as(
    context: Context,
    self: Array,
    mat1: Array,
    mat2: Array,
    out_dtype: int,
    beta: Scalar,
    alpha: Scalar,
    out: Array,
) -> BoundCall:
    _check_out_dtype(self, out_dtype, out)
    return _addmm(context, self, mat1, mat2, beta, alpha, out)


@kernel("aten::_addmm_activation.out")
def addmm_activation(
    context: Context,
    self: Array,
    mat1: Array,
    mat2: Array,
    beta: Scalar,
    alpha: Scalar,
    use_gelu: bool,
    out: Array,
) -> BoundCall:
    """`addmm`, then relu or gelu."""
    check_same_dtype(out, "out", self, "self")
    total = context.workspace((*mat1.shape[:1], *mat2.shape[1:]), compute_type(self.dtype))
    add = _addmm(context, self, mat1, mat2, beta, alpha, total)
    activate = gelu(context, total, "none", out) if use_gelu else relu(context, total, out)
    return in_turn(add, activate)


def _addbmm_shape(batch1: Array, batch2: Array) -> Shape:
    _check_operands(batch1, "batch1", batch2, "batch2", 3)
    return batch1.shape[1], batch2.shape[2]


@kernel("aten::addbmm.out")
def addbmm(
    context: Context, self: Array, batch1: Array, batch2: Array, beta: Scalar, alpha: Scalar, out: Array
) -> BoundCall:
    """beta * self + alpha * Σ batch1[i] @ batch2[i]."""
    shape = _addbmm_shape(batch1, batch2)
    check_same_dtype(self, "self", batch1, "batch1")
    check_same_dtype(out, "out", self, "self")
    return _sum_call(context, _sum_of_products, (batch1, batch2), self, beta, alpha, out, shape)


def _sum_of_products(a: Array, b: Array, out: Array) -> None:
    """Σ aᵢ bᵢ as one product, [a₀ a₁ …] @ [b₀; b₁; …]: the batch moves beside the inner dim."""
    rows, columns = a.swapaxes(0, 1).reshape(a.shape[1], -1), b.reshape(-1, b.shape[2])
    np.matmul(rows, columns, out)


@kernel("aten::baddbmm.out")
def baddbmm(
    context: Context, self: Array, batch1: Array, batch2: Array, beta: Scalar, alpha: Scalar, out: Array
) -> BoundCall:
    """beta * self[i] + alpha * (batch1[i] @ batch2[i])."""
    rows, columns = _addbmm_shape(batch1, batch2)
    check_same_dtype(self, "self", batch1, "batch1")
    check_same_dtype(out, "out", self, "self")
    shape = (len(batch1), rows, columns)
    return _sum_call(context, np.matmul, (batch1, batch2), self, beta, alpha, out, shape)


@kernel("aten::addmv.out")
def addmv(context: Context, self: Array, mat: Array, vec: Array, beta: Scalar, alpha: Scalar, out: Array) -> BoundCall:
    """beta * self + alpha * (mat @ vec)."""
    check_rank(mat, (2,), "mat")
    check_rank(vec, (1,), "vec")
    check_same_dtype(vec, "vec", mat, "mat")
    check_same_dtype(self, "self", mat, "mat")
    check_same_dtype(out, "out", self, "self")
    if mat.shape[1] != vec.shape[0]:
        raise InvalidArgument(f"arguments 'mat' {mat.shape} and 'vec' {vec.shape} cannot be multiplied")
    return _sum_call(context, np.matmul, (mat, vec), self, beta, alpha, out, mat.shape[:1])


@kernel("aten::linear.out")
def linear(context: Context, input: Array, weight: Array, bias: Array | None, out: Array) -> BoundCall:
    """input (*, in) with weight (out, in) and bias (out) -> (*, out)."""
    check_rank(weight, (2,), "weight")
    check_same_dtype(weight, "weight", input, "input")
    if input.ndim == 0 or input.shape[-1] != weight.shape[1]:
        raise InvalidArgument(f"arguments 'input' {input.shape} and 'weight' {weight.shape} cannot be multiplied")
    out = prepare_out(context, out, input.dtype, (*input.shape[:-1], weight.shape[0]))
    compute = compute_type(input.dtype)
    rows, result = _as_matrices(input, out)
    if bias is None:
        return function_call(context, np.matmul, (rows, weight.T), result, compute)
    check_same_kind(bias, "bias", input, "input")
    check_broadcasts(bias, result.shape, "bias")
    return function_call(context, partial(_add, np.matmul), (rows, weight.T, bias), result, compute)


def _as_matrices(x: Array, y: Array) -> tuple[Array, Array]:
    """Both as one matrix where that needs no copy: one product instead of one for each leading index."""
    if x.ndim > 2 and x.size and y.size and x.flags.c_contiguous and y.flags.c_contiguous:
        return x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    return x, y
