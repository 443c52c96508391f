"""NumPy arrays <-> onnxruntime's values over the same memory, bfloat16 among them, which NumPy has from ml_dtypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from delegraph import program
from delegraph.interfaces import Buffer

if TYPE_CHECKING:
    import onnxruntime
    from numpy.typing import NDArray

__all__ = ["PAIRS", "array_in", "as_array", "as_pairs", "numpy_dtype", "ort_value", "type_in_graph"]

PAIRS: Final = {"complex64": "float32", "complex128": "float64"}
"""The dtypes of the pairs that onnxruntime has for complex tensors."""

_BFLOAT16: Final = 16
"""The element type in ONNX (onnx.proto, TensorProto.DataType)."""


def ort_value(array: NDArray[Any]) -> onnxruntime.OrtValue:
    """A value over the memory of `array`, which is contiguous and must outlive it; complex numbers are pairs."""
    from delegraph_cpu.engine import onnxruntime

    array = as_pairs(array)
    if array.dtype.name == "bfloat16":
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, _BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def as_pairs(array: NDArray[Any]) -> NDArray[Any]:
    """Complex numbers as pairs along one more dim; anything else as it is."""
    return array.reshape(-1).view(array.real.dtype).reshape(*array.shape, 2) if array.dtype.kind == "c" else array


def type_in_graph(array: NDArray[Any]) -> tuple[str, tuple[int, ...]]:
    """The dtype and shape of the tensor that `array` is in a graph."""
    pairs = as_pairs(array)
    return str(pairs.dtype), pairs.shape


def as_array(value: onnxruntime.OrtValue, dtype: str = "") -> NDArray[Any]:
    """The content of `value`; pairs as complex numbers if `dtype` says so. bfloat16 is valid as long as `value` is."""
    if dtype in PAIRS:
        pairs: NDArray[Any] = value.numpy()
        return pairs.reshape(-1).view(dtype).reshape(pairs.shape[:-1])
    if value.data_type() != "tensor(bfloat16)":
        array: NDArray[Any] = value.numpy()
        return array
    shape = tuple(value.shape())
    data = (ctypes.c_char * (2 * prod(shape))).from_address(value.data_ptr())
    return array_in(data, "bfloat16", shape)


def array_in(data: Buffer, dtype: str, shape: Sequence[int]) -> NDArray[Any]:
    """The array of `dtype` and `shape` over all of `data`."""
    return np.frombuffer(data, numpy_dtype(dtype)).reshape(shape)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The dtype with that name in a blob."""
    return program.numpy_dtype(program.scalar_type(name))
