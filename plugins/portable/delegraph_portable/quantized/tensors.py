"""Affine quantization: real numbers <-> (integer - zero point) * scale, and the choice of scale and zero point.

The formulae are those of torch's reference implementation (`torch.ao.quantization.fx._decomposed`): numbers are rounded
half to even; per tensor and per channel before the zero point is added, per token and per group after it. Numbers
out of range become the nearest that is in it, and NaN becomes 0 among integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.lazy_dataclass import dataclass
from delegraph.runtime.numpy_kernels.evaluate import copy_call
from delegraph.runtime.numpy_kernels.prepared import Array, Context
from delegraph.runtime.numpy_kernels.promotion import (
    FLOAT32,
    FLOAT64,
    DType,
    check_floating,
    check_kind,
    is_floating,
    is_integral,
    requested_type,
)
from delegraph.runtime.numpy_kernels.shapes import Shape, check_rank, check_shape, wrap_dim

from ..library import kernel

_FLOAT8_RANGES: Final = {"float8_e4m3fn": (-448, 448), "float8_e5m2": (-57344, 57344)}


def _range(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest quantized value of a dtype."""
    if dtype.kind in "iu" and dtype.itemsize <= 4 and dtype != np.uint32:
        limits = np.iinfo(dtype)
        return int(limits.min), int(limits.max)
    if dtype.name in _FLOAT8_RANGES:
        return _FLOAT8_RANGES[dtype.name]
    raise InvalidType(
        f"quantized tensors are uint8, int8, uint16, int16, int32, float8_e4m3fn or float8_e5m2, not {dtype}"
    )


def _check_range(quant_min: int, quant_max: int, dtype: DType) -> None:
    low, high = _range(dtype)
    if not low <= quant_min <= quant_max <= high:
        raise InvalidArgument(
            f"arguments 'quant_min' {quant_min} and 'quant_max' {quant_max} must lie in order between {low} and {high}"
        )


def _check_dtype(array: Array, name: str, dtype: int) -> None:
    expected = requested_type(dtype, array.dtype)
    if array.dtype != expected:
        raise InvalidType(f"argument {name!r} is {array.dtype}, but argument 'dtype' says {expected}")


def _check_single(**parameters: float | Array) -> None:
    for name, value in parameters.items():
        if isinstance(value, np.ndarray) and value.size != 1:
            raise InvalidArgument(f"argument {name!r} must have one element, but has shape {value.shape}")


# ---- scales and zero points beside the elements ------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Layout:
    """The shape in which the input is seen, and that of its scales and zero points, which broadcasts to it."""

    rows: Shape
    parameters: Shape


def _by_channel(input: Array, scales: Array, zero_points: Array | None, axis: int) -> _Layout:
    """One number for each index of `axis`."""
    check_rank(input, range(1, 17), "input")
    axis = wrap_dim(axis, input.ndim, "axis")
    check_shape(scales, (input.shape[axis],), "scales")
    if zero_points is not None:
        check_shape(zero_points, scales.shape, "zero_points")
    return _Layout(input.shape, tuple(size if dim == axis else 1 for dim, size in enumerate(input.shape)))


def _by_token(input: Array, scales: Array, zero_points: Array) -> _Layout:
    """One number for each row of the last dim."""
    check_rank(input, range(1, 17), "input")
    for array, name in ((scales, "scales"), (zero_points, "zero_points")):
        if array.size != math.prod(input.shape[:-1]):
            raise InvalidArgument(
                f"argument {name!r} of shape {array.shape} does not fit 'input' of shape {input.shape}"
            )
    return _Layout(input.shape, (*input.shape[:-1], 1))


def _by_group(input: Array, scales: Array, group_size: int) -> _Layout:
    """One number for each `group_size` elements of a row of a matrix. A single scale may stand for shorter rows."""
    check_rank(input, (2,), "input")
    columns = input.shape[1]
    size = columns if group_size > columns and scales.shape[-1] == 1 else group_size
    if size <= 1 or columns % size:
        raise InvalidArgument(f"argument 'group_size' is {group_size}, which does not divide rows of {columns}")
    groups = input.size // size
    if scales.size != groups:
        raise InvalidArgument(f"argument 'scales' has {scales.size} elements, but 'input' has {groups} groups")
    return _Layout((groups, size), (groups, 1))


# ---- quantize ---------------------------------------------------------------------------------------


def _prepare_quantize(context: Context, input: Array, quant_min: int, quant_max: int, dtype: int, out: Array) -> Array:
    check_floating(input, "input")
    _check_dtype(out, "out", dtype)
    _check_range(quant_min, quant_max, out.dtype)
    return context.resize(out, input.shape)


def _store(values: Array, quant_min: int, quant_max: int, out: Array) -> None:
    """`values`, integers in float64, cut to the range; NaN as 0 among integers."""
    clipped = values.clip(quant_min, quant_max)
    copy_call(out, np.where(values == values, clipped, 0) if is_integral(out.dtype) else clipped)()


def _quantize(x: Array, scale: Array, zero_point: Array, quant_min: int, quant_max: int, out: Array) -> None:
    """round(x / scale) + zero_point. The zero point is added in float64, where no int32 is rounded."""
    scaled = x * (1 / scale).astype(np.result_type(x, scale))
    _store(np.rint(scaled).astype(FLOAT64) + zero_point, quant_min, quant_max, out)


def _quantize_late(x: Array, scale: Array, zero_point: Array, quant_min: int, quant_max: int, out: Array) -> None:
    """round(x / scale + zero_point)."""
    shifted = x * (1 / scale) + zero_point.astype(FLOAT32 if is_integral(zero_point.dtype) else zero_point.dtype)
    _store(np.rint(shifted).astype(FLOAT64), quant_min, quant_max, out)


def _single(input: Array) -> Array:
    """float32, in which per-tensor and per-channel numbers are scaled."""
    return input.astype(FLOAT32, copy=False)


def _numbers(scale: float | Array, zero_point: int | Array) -> tuple[Array, Array]:
    """1 / scale is taken of the double, and then rounded to float32."""
    factor = np.float64(scale.item() if isinstance(scale, np.ndarray) else scale)
    return np.asarray(factor), np.asarray(zero_point).reshape(())


def _quantize_per_tensor(
    input: Array, scale: float | Array, zero_point: int | Array, quant_min: int, quant_max: int, out: Array
) -> None:
    factor, offset = _numbers(scale, zero_point)
    scaled = _single(input) * (1 / factor).astype(FLOAT32)
    _store(np.rint(scaled).astype(FLOAT64) + offset, quant_min, quant_max, out)


@kernel("quantized_decomposed::quantize_per_tensor.out", "quantized_decomposed::quantize_per_tensor.Tensor_out")
def quantize_per_tensor(
    context: Context,
    input: Array,
    scale: float | Array,
    zero_point: int | Array,
    quant_min: int,
    quant_max: int,
    dtype: int,
    out: Array,
) -> BoundCall:
    _check_single(scale=scale, zero_point=zero_point)
    out = _prepare_quantize(context, input, quant_min, quant_max, dtype, out)
    return partial(_quantize_per_tensor, input, scale, zero_point, quant_min, quant_max, out)


def _quantize_call(
    context: Context,
    function: Callable[[Array, Array, Array, int, int, Array], None],
    layout: _Layout,
    values: tuple[Array, Array, Array],
    quant_min: int,
    quant_max: int,
    dtype: int,
    out: Array,
) -> BoundCall:
    """`function` on the input, its scales and zero points, which are `values`."""
    out = _prepare_quantize(context, values[0], quant_min, quant_max, dtype, out)
    quantized = out if layout.rows == out.shape else context.workspace(layout.rows, out.dtype)

    def call() -> None:
        input, scales, zero_points = values
        scale, zero_point = scales.reshape(layout.parameters), zero_points.reshape(layout.parameters)
        function(_single(input).reshape(layout.rows), scale, zero_point, quant_min, quant_max, quantized)
        if quantized is not out:
            np.copyto(out, quantized.reshape(out.shape))

    return call


@kernel("quantized_decomposed::quantize_per_channel.out")
def quantize_per_channel(
    context: Context, input: Array, scales: Array, zero_points: Array, axis: int, *range_and_out: Any
) -> BoundCall:
    layout = _by_channel(input, scales, zero_points, axis)
    return _quantize_call(context, _quantize, layout, (input, scales, zero_points), *range_and_out)


@kernel("quantized_decomposed::quantize_per_token.out")
def quantize_per_token(
    context: Context, input: Array, scales: Array, zero_points: Array, *range_and_out: Any
) -> BoundCall:
    layout = _by_token(input, scales, zero_points)
    return _quantize_call(context, _quantize_late, layout, (input, scales, zero_points), *range_and_out)


@kernel("quantized_decomposed::quantize_per_channel_group.out")
def quantize_per_channel_group(
    context: Context, input: Array, scales: Array, zero_points: Array, *range_group_and_out: Any
) -> BoundCall:
    """Each `group_size` elements of a row have a scale and a zero point of their own."""
    low, high, dtype, group_size, out = range_group_and_out
    layout = _by_group(input, scales, group_size)
    return _quantize_call(context, _quantize_late, layout, (input, scales, zero_points), low, high, dtype, out)


# ---- dequantize -------------------------------------------------------------------------------------


def dequantize(input: Array, scale: Array, zero_point: Array | None, out: Array) -> None:
    """(input - zero_point) * scale: integers are subtracted exactly; then in the scale's dtype, at least float32."""
    if zero_point is None:
        difference = input
    elif is_integral(input.dtype) and is_integral(zero_point.dtype):
        difference = np.subtract(input, zero_point, dtype=np.int64)
    else:
        difference = input.astype(FLOAT32) - zero_point.astype(FLOAT32)
    compute = FLOAT64 if scale.dtype == FLOAT64 else FLOAT32
    copy_call(out, difference.astype(compute) * scale.astype(compute))()


def _prepare_dequantize(context: Context, input: Array, dtype: int, out_dtype: int | None, out: Array) -> Array:
    _check_dtype(input, "input", dtype)
    _range(input.dtype)
    result_dtype = requested_type(out_dtype, FLOAT32)
    if out.dtype != result_dtype or not is_floating(result_dtype):
        raise InvalidType(f"argument 'out' is {out.dtype}, but the result is asked for as {result_dtype}")
    return context.resize(out, input.shape)


def _dequantize_per_tensor(input: Array, scale: float | Array, zero_point: int | Array, out: Array) -> None:
    factor, offset = _numbers(scale, zero_point)
    dequantize(input, factor if out.dtype == FLOAT64 else factor.astype(FLOAT32), offset, out)


@kernel("quantized_decomposed::dequantize_per_tensor.out", "quantized_decomposed::dequantize_per_tensor.Tensor_out")
def dequantize_per_tensor(
    context: Context,
    input: Array,
    scale: float | Array,
    zero_point: int | Array,
    quant_min: int,
    quant_max: int,
    dtype: int,
    out_dtype: int | None,
    out: Array,
) -> BoundCall:
    _check_single(scale=scale, zero_point=zero_point)
    out = _prepare_dequantize(context, input, dtype, out_dtype, out)
    return partial(_dequantize_per_tensor, input, scale, zero_point, out)


def _dequantize_call(
    context: Context,
    layout: _Layout,
    values: tuple[Array, Array, Array | None],
    quant_min: int,
    quant_max: int,
    dtype: int,
    out_dtype: int | None,
    out: Array,
) -> BoundCall:
    """`dequantize` of the input, its scales and zero points, which are `values`."""
    out = _prepare_dequantize(context, values[0], dtype, out_dtype, out)
    real = out if layout.rows == out.shape else context.workspace(layout.rows, out.dtype)

    def call() -> None:
        input, scales, zero_points = values
        zero_point = None if zero_points is None else zero_points.reshape(layout.parameters)
        dequantize(input.reshape(layout.rows), scales.reshape(layout.parameters), zero_point, real)
        if real is not out:
            np.copyto(out, real.reshape(out.shape))

    return call


@kernel("quantized_decomposed::dequantize_per_channel.out")
def dequantize_per_channel(
    context: Context, input: Array, scales: Array, zero_points: Array | None, axis: int, *range_and_out: Any
) -> BoundCall:
    layout = _by_channel(input, scales, zero_points, axis)
    return _dequantize_call(context, layout, (input, scales, zero_points), *range_and_out)


@kernel("quantized_decomposed::dequantize_per_token.out")
def dequantize_per_token(
    context: Context, input: Array, scales: Array, zero_points: Array, *range_and_out: Any
) -> BoundCall:
    layout = _by_token(input, scales, zero_points)
    return _dequantize_call(context, layout, (input, scales, zero_points), *range_and_out)


@kernel("quantized_decomposed::dequantize_per_channel_group.out")
def dequantize_per_channel_group(
    context: Context, input: Array, scales: Array, zero_points: Array | None, *range_group_and_out: Any
) -> BoundCall:
    low, high, dtype, group_size, out_dtype, out = range_group_and_out
    layout = _by_group(input, scales, group_size)
    return _dequantize_call(context, layout, (input, scales, zero_points), low, high, dtype, out_dtype, out)


# ---- sums -------------------------------------------------------------------------------------------


@kernel("quantized_decomposed::add.out")
def add(
    context: Context,
    a: Array,
    a_scale: float,
    a_zero_point: int,
    a_quant_min: int,
    a_quant_max: int,
    b: Array,
    b_scale: float,
    b_zero_point: int,
    b_quant_min: int,
    b_quant_max: int,
    out_scale: float,
    out_zero_point: int,
    out_quant_min: int,
    out_quant_max: int,
    out: Array,
) -> BoundCall:
    """Dequantized, added and quantized again, all in float32."""
    check_kind(a.dtype, "i", "a")
    check_shape(b, a.shape, "b")
    for array, name in ((b, "b"), (out, "out")):
        if array.dtype != a.dtype:
            raise InvalidType(f"argument {name!r} is {array.dtype}, but argument 'a' is {a.dtype}")
    _check_range(out_quant_min, out_quant_max, out.dtype)
    out = context.resize(out, a.shape)
    total, addend = context.workspace(a.shape, FLOAT32), context.workspace(a.shape, FLOAT32)

    def call() -> None:
        _dequantize_per_tensor(a, a_scale, a_zero_point, total)
        _dequantize_per_tensor(b, b_scale, b_zero_point, addend)
        np.add(total, addend, total)
        scale, zero_point = np.asarray(out_scale, FLOAT32), np.asarray(out_zero_point)
        _quantize(total, scale, zero_point, out_quant_min, out_quant_max, out)

    return call
