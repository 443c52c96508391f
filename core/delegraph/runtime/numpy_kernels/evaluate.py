"""A function and its operands -> a bound call: operands cast to the compute dtype, the result cast to `out`'s."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np

from delegraph.interfaces import BoundCall
from delegraph.lazy_dataclass import dataclass
from delegraph.runtime.numpy_kernels.prepared import Array, Context, Scalar
from delegraph.runtime.numpy_kernels.promotion import BOOL, FLOAT32, DType, compute_type, is_complex, is_float8

__all__ = [
    "StagingBuffer",
    "as_array",
    "begin_call",
    "contiguous_staging_buffer",
    "copy_call",
    "function_call",
    "nothing",
    "staged_call",
    "staging_buffer",
    "to_float8",
    "ufunc_call",
]

_OUT_BY_NAME: Final = frozenset({np.maximum, np.minimum})


def as_array(operand: Array | Scalar, dtype: DType) -> Array:
    """Tensors as they are; a Python number as a 0-d array of `dtype`, wrapped around as in C where it does not fit."""
    if isinstance(operand, np.ndarray):
        return operand
    number = np.array(operand)
    return to_float8(number, dtype) if is_float8(dtype) else number.astype(dtype)


def ufunc_call(
    ufunc: np.ufunc, operands: Sequence[Array | Scalar], out: Array, dtype: DType, result: DType | None = None
) -> BoundCall:
    """`ufunc` on `operands` cast to the compute type of `dtype`; its result, of type `result` or the same, into `out`.

    NumPy casts in small blocks on the way, so no operand is copied as a whole.
    """
    compute = compute_type(dtype)
    result = result or compute
    arrays = [as_array(operand, compute) for operand in operands]
    if out.dtype == result and all(a.dtype == compute for a in arrays):
        # A keyword costs half as much again as a small call, but NumPy 2.4 wants it for these two.
        return partial(ufunc, *arrays, out=out) if ufunc in _OUT_BY_NAME else partial(ufunc, *arrays, out)
    if is_float8(out.dtype):
        return lambda: _copy_float8(out, ufunc(*(array.astype(compute, copy=False) for array in arrays)))
    signature = (compute,) * len(arrays) + (result,)
    return partial(ufunc, *arrays, out=out, signature=signature, casting="unsafe")


@dataclass(frozen=True, slots=True)
class StagingBuffer:
    """A tensor, and the array that a function computes on: the same, or a buffer of the dtype and layout that it needs.

    `tensor` and `buffer` have one shape; they are one object if nothing is to be copied.
    """

    tensor: Array
    buffer: Array

    def load(self) -> None:
        if self.buffer is not self.tensor:
            np.copyto(self.buffer, self.tensor, casting="unsafe")

    def store(self) -> None:
        if self.buffer is not self.tensor:
            np.copyto(self.tensor, self.buffer, casting="unsafe")

    def store_float8(self) -> None:
        _copy_float8(self.tensor, self.buffer)


def staging_buffer(context: Context, tensor: Array, dtype: DType) -> StagingBuffer:
    """`tensor` in `dtype`, of any strides."""
    return StagingBuffer(tensor, tensor if tensor.dtype == dtype else context.workspace(tensor.shape, dtype))


def contiguous_staging_buffer(context: Context, tensor: Array, dtype: DType) -> StagingBuffer:
    """`tensor` in `dtype`, C-contiguous."""
    direct = tensor.dtype == dtype and tensor.flags.c_contiguous
    return StagingBuffer(tensor, tensor if direct else context.workspace(tensor.shape, dtype))


def staged_call(function: BoundCall, inputs: Sequence[StagingBuffer], outputs: Sequence[StagingBuffer]) -> BoundCall:
    """`function`, which works on the staging buffers, between loading the inputs and storing the outputs."""
    loads = [s.load for s in inputs if s.buffer is not s.tensor]
    stores = [s.store_float8 if is_float8(s.tensor.dtype) else s.store for s in outputs if s.buffer is not s.tensor]
    if not loads and not stores:
        return function

    def call() -> None:
        for load in loads:
            load()
        function()
        for store in stores:
            store()

    return call


def function_call(
    context: Context, function: Callable[..., object], operands: Sequence[Array], out: Array, dtype: DType
) -> BoundCall:
    """`function(*operands, out)` with operands and `out` cast to and from `dtype`."""
    inputs = [staging_buffer(context, operand, dtype) for operand in operands]
    output = staging_buffer(context, out, dtype)
    return staged_call(partial(function, *(s.buffer for s in inputs), output.buffer), inputs, [output])


def copy_call(out: Array, source: Array) -> BoundCall:
    """Copy `source` into `out`, cast and broadcast."""
    if out.dtype == source.dtype:
        return partial(np.copyto, out, source)
    if is_float8(out.dtype) or is_float8(source.dtype):
        return partial(_copy_float8, out, source)
    if is_complex(source.dtype) and not is_complex(out.dtype) and out.dtype != BOOL:
        source = source.real  # NumPy warns where it drops the other part itself
    return partial(np.copyto, out, source, "unsafe")


_LARGEST: Final = {"float8_e4m3fn": 448.0}
"""The number that torch makes of larger ones, infinities too, in a dtype without infinity; ml_dtypes makes NaN."""


def to_float8(source: Array, dtype: DType) -> Array:
    """`source` in a float8 dtype, or from one, by way of float32 as in torch."""
    wide = (source.real if is_complex(source.dtype) else source).astype(FLOAT32)
    largest = _LARGEST.get(dtype.name)
    return (wide if largest is None else wide.clip(-largest, largest)).astype(dtype)


def _copy_float8(out: Array, source: Array) -> None:
    np.copyto(out, to_float8(source, out.dtype))


def begin_call(out: Array, self: Array) -> BoundCall:
    """Copy `self`, which is to be changed, into `out`; nothing where a program updates it in place."""
    return nothing if out is self else copy_call(out, self)


def nothing() -> None:
    """The call that has nothing to do: an empty output, no padding, an update in place."""
