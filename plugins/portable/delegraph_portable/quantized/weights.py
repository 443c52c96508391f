"""Embeddings and matrix products whose weights are integers of 8, 4 or 2 bits, with scales per row, column or group.

Operators without an implementation in torch follow ExecuTorch's kernels (`kernels/quantized/cpu`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.interfaces import BoundCall
from delegraph.runtime.numpy_kernels.evaluate import staged_call, staging_buffer
from delegraph.runtime.numpy_kernels.prepared import Array, Context, when_constant
from delegraph.runtime.numpy_kernels.promotion import check_floating, check_index, compute_type, requested_type
from delegraph.runtime.numpy_kernels.shapes import check_rank, check_shape

from ..indexing.indices import check_range
from ..library import kernel
from .tensors import dequantize

Unpack = Callable[[Array], Array]
"""Packed rows of bytes -> rows of integers."""


def _nibbles(rows: Array) -> Array:
    """-8 to 7: the high half of a byte comes first."""
    # byte 0xA3 -> 10, 3 -> 2, -5: values are stored plus 8, so that a half byte is never negative
    return _interleave(rows >> 4, rows & 15) - np.int8(8)


def _crumbs(rows: Array) -> Array:
    """-2 to 1: the lowest two bits of a byte come first."""
    # byte 0b11100100 -> 0, 1, 2, 3 -> -2, -1, 0, 1: values are stored plus 2
    return _interleave(*(rows >> shift & 3 for shift in (0, 2, 4, 6))) - np.int8(2)


def _interleave(*parts: Array) -> Array:
    *rows, columns = parts[0].shape
    # A new last dim holds a byte's values side by side; merged with the columns, they stand in the row's order.
    return np.stack(parts, -1).reshape(*rows, columns * len(parts)).astype(np.int8)


def _bytes(rows: Array) -> Array:
    return rows


_EMBEDDINGS: Final[dict[str, tuple[Unpack, int, tuple[int, int] | None]]] = {
    "embedding_byte": (_bytes, 1, None),
    "embedding_4bit": (_nibbles, 2, (-8, 7)),
    "embedding_2bit": (_crumbs, 4, (-2, 1)),
}
"""Operator -> how a row is unpacked, the values in a byte, and the range that the arguments must name."""


def _grouped(parameters: Array | None, columns: int, rows: Array) -> Array | None:
    """Scales or zero points (n) or (n, groups), of the chosen `rows`, repeated for each of the columns of a group."""
    if parameters is None:
        return None
    chosen = parameters[rows]
    if parameters.ndim == 1:
        return np.asarray(chosen[..., None])
    return np.repeat(chosen, -(-columns // parameters.shape[1]), -1)[..., :columns]


def _check_parameters(weight: Array, scales: Array, zero_points: Array | None) -> None:
    check_rank(weight, (2,), "weight")
    check_rank(scales, (1, 2), "weight_scales")
    check_floating(scales, "weight_scales")
    if scales.shape[0] != weight.shape[0]:
        raise InvalidArgument(f"argument 'weight_scales' of shape {scales.shape} does not fit 'weight' {weight.shape}")
    if zero_points is not None:
        check_shape(zero_points, scales.shape, "weight_zero_points")


def _embedding(
    name: str,
    context: Context,
    weight: Array,
    weight_scales: Array,
    weight_zero_points: Array | None,
    weight_quant_min: int,
    weight_quant_max: int,
    indices: Array,
    *options: Any,
) -> BoundCall:
    """The rows that `indices` (*) choose, dequantized: (*, columns)."""
    *dtype, out = options
    unpack, per_byte, limits = _EMBEDDINGS[name]
    _check_parameters(weight, weight_scales, weight_zero_points)
    if weight.dtype not in ((np.int8, np.uint8) if per_byte == 1 else (np.uint8,)):
        raise InvalidType(f"argument 'weight' must hold bytes, but is {weight.dtype}")
    if limits is not None and (weight_quant_min, weight_quant_max) != limits:
        raise InvalidArgument(
            f"arguments 'weight_quant_min' and 'weight_quant_max' must be {limits[0]} and {limits[1]}"
        )
    check_index(indices, "indices")
    check_floating(out, "out")
    result_dtype = requested_type(dtype[0], out.dtype) if dtype else out.dtype
    if out.dtype != result_dtype:
        raise InvalidType(f"argument 'out' is {out.dtype}, but argument 'dtype' says {result_dtype}")
    columns = weight.shape[1] * per_byte
    if weight_scales.ndim == 2 and (weight_scales.shape[1] == 0 or columns % weight_scales.shape[1]):
        raise InvalidArgument(f"argument 'weight_scales' has {weight_scales.shape[1]} groups for {columns} columns")
    out = context.resize(out, (*indices.shape, columns))

    def call() -> None:
        check_range(indices, weight.shape[0], 0, "indices")
        scale = _grouped(weight_scales, columns, indices)
        assert scale is not None
        dequantize(unpack(weight[indices]), scale, _grouped(weight_zero_points, columns, indices), out)

    return call


for _name in _EMBEDDINGS:
    kernel(f"quantized_decomposed::{_name}.out", f"quantized_decomposed::{_name}.dtype_out")(partial(_embedding, _name))


# ---- products ---------------------------------------------------------------------------------------


@kernel("quantized_decomposed::mixed_mm.out")
def mixed_mm(
    context: Context, input: Array, weight: Array, weight_scales: Array, weight_zero_points: Array | None, out: Array
) -> BoundCall:
    """input (m, n) times the dequantized weight (n, p), of which each row has a scale."""
    check_rank(weight_scales, (1,), "weight_scales")
    return _product(context, input, weight, weight_scales, weight_zero_points, False, out)


@kernel("quantized_decomposed::mixed_linear.out")
def mixed_linear(
    context: Context,
    input: Array,
    weight: Array,
    weight_scales: Array,
    weight_zero_points: Array | None,
    dtype: int | None,
    out: Array,
) -> BoundCall:
    """input (m, n) times the transposed dequantized weight (p, n), of which each row, or group in it, has a scale."""
    if out.dtype != requested_type(dtype, out.dtype):
        raise InvalidType(
            f"argument 'out' is {out.dtype}, but argument 'dtype' says {requested_type(dtype, out.dtype)}"
        )
    return _product(context, input, weight, weight_scales, weight_zero_points, True, out)


def _product(
    context: Context,
    input: Array,
    weight: Array,
    scales: Array,
    zero_points: Array | None,
    transposed: bool,
    out: Array,
) -> BoundCall:
    check_rank(input, (2,), "input")
    check_floating(input, "input")
    check_floating(out, "out")
    _check_parameters(weight, scales, zero_points)
    if weight.dtype != np.int8:
        raise InvalidType(f"argument 'weight' must be int8, but is {weight.dtype}")
    inner, columns = reversed(weight.shape) if transposed else weight.shape
    if input.shape[1] != inner:
        raise InvalidArgument(f"arguments 'input' {input.shape} and 'weight' {weight.shape} cannot be multiplied")
    compute = compute_type(input.dtype)
    x, result = (
        staging_buffer(context, array, compute) for array in (input, context.resize(out, (input.shape[0], columns)))
    )
    dequantized = when_constant(context, _dequantized, weight, scales, zero_points)

    def call() -> None:
        matrix = dequantized().astype(compute, copy=False)
        np.matmul(x.buffer, matrix.T if transposed else matrix, out=result.buffer)

    return staged_call(call, [x], [result])


def _dequantized(weight: Array, scales: Array, zero_points: Array | None) -> Array:
    rows = np.arange(weight.shape[0])
    scale = _grouped(scales, weight.shape[1], rows)
    assert scale is not None
    real = np.empty(weight.shape, compute_type(scales.dtype))
    dequantize(weight, scale, _grouped(zero_points, weight.shape[1], rows), real)
    return real
