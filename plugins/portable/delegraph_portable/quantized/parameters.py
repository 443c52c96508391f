"""A real tensor -> scale and zero point of its affine quantization, chosen as torch's reference implementation does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import FLOAT32, FLOAT64, INT64, check_floating, requested_type
from delegraph.runtime.numpy_kernels.shapes import check_rank

from ..library import kernel


def _check(input: Array, scale_out: Array, zero_point_out: Array) -> None:
    check_floating(input, "input")
    for array, name, dtype in ((scale_out, "scale_out", FLOAT64), (zero_point_out, "zero_point_out", INT64)):
        if array.dtype != dtype:
            raise InvalidType(f"argument {name!r} must be {dtype}, but is {array.dtype}")


def _asymmetric(low: Array, high: Array, quant_min: int, quant_max: int, eps: float, dtype: int) -> tuple[Array, int]:
    """Of the least range that holds 0 and all elements; the scale is at least `eps`."""
    scale = np.maximum((high - low) / np.float32(quant_max - quant_min), np.float32(eps))
    return scale, int(np.clip(quant_min - int(np.rint(low / scale)), quant_min, quant_max))


def _symmetric(low: Array, high: Array, quant_min: int, quant_max: int, eps: float, dtype: int) -> tuple[Array, int]:
    """Of the least range around 0 that holds all elements: the zero point is 0, or 128 of uint8."""
    scale = np.maximum(np.maximum(-low, high) / np.float32((quant_max - quant_min) / 2), np.float32(eps))
    return scale, 128 if requested_type(dtype, FLOAT32) == np.uint8 else 0


def _choose(
    formula: Callable[[Array, Array, int, int, float, int], tuple[Array, int]],
    context: Context,
    input: Array,
    quant_min: int,
    quant_max: int,
    eps: float,
    dtype: int,
    scale_out: Array,
    zero_point_out: Array,
) -> BoundCall:
    """One scale and one zero point for the whole tensor, each of shape (1,)."""
    _check(input, scale_out, zero_point_out)
    if input.size == 0:
        raise InvalidArgument("argument 'input' is empty: it has no range")
    if not quant_min <= 0 <= quant_max or quant_min == quant_max:
        raise InvalidArgument(f"arguments 'quant_min' {quant_min} and 'quant_max' {quant_max} must enclose 0")
    scale_out, zero_point_out = context.resize(scale_out, (1,)), context.resize(zero_point_out, (1,))

    def call() -> None:
        low, high = _range_with_zero(input.astype(FLOAT32, copy=False), None)
        scale_out[0], zero_point_out[0] = formula(low, high, quant_min, quant_max, eps, dtype)

    return call


kernel("quantized_decomposed::choose_qparams.Tensor_out")(partial(_choose, _asymmetric))
kernel("quantized_decomposed::choose_qparams_symmetric.Tensor_out")(partial(_choose, _symmetric))


@kernel("quantized_decomposed::choose_qparams_per_token_asymmetric.out")
def choose_qparams_per_token_asymmetric(
    context: Context, input: Array, dtype: int, scale_out: Array, zero_point_out: Array
) -> BoundCall:
    """For int8, of each row of the last dim: input (*, n) -> (*, 1)."""
    _check(input, scale_out, zero_point_out)
    check_rank(input, range(1, 17), "input")
    if input.shape[-1] == 0:
        raise InvalidArgument(f"argument 'input' of shape {input.shape} has empty rows, which have no range")
    shape = (*input.shape[:-1], 1)
    scale_out, zero_point_out = context.resize(scale_out, shape), context.resize(zero_point_out, shape)

    def call() -> None:
        low, high = _range_with_zero(input.astype(FLOAT32, copy=False), -1)
        scale = np.maximum((high - low) / np.float32(255), np.finfo(FLOAT32).eps)
        low, high = low / scale, high / scale
        nearer_to_low = (low - 128) + (high + 127) > 0
        zero_point = np.rint(np.where(nearer_to_low, -128 - low, 127 - high).clip(-128, 127))
        np.copyto(scale_out, scale)
        np.copyto(zero_point_out, zero_point, casting="unsafe")

    return call


def _range_with_zero(x: Array, axis: int | None) -> tuple[Array, Array]:
    """Smallest and largest element along `axis`, kept, or 0 beyond them."""
    low = np.minimum(x.min(axis, keepdims=axis is not None), np.float32(0))
    high = np.maximum(x.max(axis, keepdims=axis is not None), np.float32(0))
    return low, high
