"""NumPy arrays -> OpenVINO tensors over the same memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from delegraph import program
from delegraph_openvino.blob import PAIRS
from delegraph_openvino.engine import openvino

__all__ = ["codes_over", "numpy_dtype", "tensor_of", "tensor_over"]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype for a dtype name of a blob."""
    return program.numpy_dtype(program.scalar_type(name))


def tensor_over(array: NDArray[Any]) -> openvino.Tensor:
    """A tensor over the memory of `array`, which is contiguous and must live as long.

    OpenVINO takes arrays only if they can be written, and writes to none that is an input or a weight.
    """
    array = _writable(array)
    if array.dtype == np.complex64:
        array = array.reshape(*array.shape, 1).view(np.float32)
    if array.dtype.isbuiltin == 2:  # registered by ml_dtypes, of whose dtypes blobs have bfloat16 alone
        return openvino.Tensor(array.view(np.uint16), list(array.shape), openvino.Type.bf16)
    return openvino.Tensor(array, shared_memory=True)


def tensor_of(dtype: str, dims: Sequence[int | str]) -> openvino.Tensor:
    """A tensor with memory of its own, which grows along dims whose sizes are known only at run time."""
    shape = [dim if isinstance(dim, int) else 0 for dim in dims]
    if dtype == "bfloat16":
        return openvino.Tensor(openvino.Type.bf16, openvino.Shape(shape))
    if dtype == PAIRS:
        return openvino.Tensor(np.dtype(np.float32), [*shape, 2])
    return openvino.Tensor(numpy_dtype(dtype), shape)


def codes_over(packed: NDArray[np.uint8], shape: Sequence[int]) -> openvino.Tensor:
    """As `tensor_over`, for codes of 4 bits: two to a byte of `packed`, the lower half first."""
    return openvino.Tensor(_writable(packed), list(shape), openvino.Type.u4)


def _writable(array: NDArray[Any]) -> NDArray[Any]:
    if array.flags.writeable:
        return array
    memory = memoryview((ctypes.c_char * array.nbytes).from_address(array.ctypes.data)).cast("B")
    return np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
