"""torch's dtypes and tensors <-> NumPy's <-> ScalarType; bfloat16 and float8 by way of ml_dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from delegraph.aot.graph.dtypes import scalar_type_of
from delegraph.aot.graph.stored_tensor import tensor_bytes
from delegraph.program import dtypes as program_dtypes
from delegraph.program.dtypes import dtype_info
from delegraph.program.schema import ScalarType

__all__ = ["as_array", "numpy_dtype", "scalar_type", "torch_dtype"]


def scalar_type(dtype: torch.dtype | np.dtype[Any] | str) -> ScalarType:
    """The code of a dtype of torch's or NumPy's, or of one's name.

    Raises `LoweringError` or `InvalidType` for one that no program can hold.
    """
    return scalar_type_of(dtype) if isinstance(dtype, torch.dtype) else program_dtypes.scalar_type(dtype)


def numpy_dtype(dtype: torch.dtype | ScalarType) -> np.dtype[Any]:
    """NumPy's dtype for `dtype`. Raises `LoweringError` or `NotSupported` where it has none."""
    return program_dtypes.numpy_dtype(scalar_type_of(dtype) if isinstance(dtype, torch.dtype) else dtype)


def torch_dtype(dtype: np.dtype[Any] | ScalarType | str) -> torch.dtype:
    """torch's dtype for `dtype`. Raises `InvalidType` for one of NumPy's that torch does not have."""
    code = dtype if isinstance(dtype, ScalarType) else program_dtypes.scalar_type(dtype)
    result: torch.dtype = getattr(torch, dtype_info(code).name)
    return result


def as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """The content of `tensor` as a C-contiguous array: over the same memory if it lies so, else a copy.

    Raises `LoweringError` for a fake tensor, and for a dtype that NumPy does not have.
    """
    dtype = numpy_dtype(tensor.dtype)
    content = tensor_bytes(tensor, range(tensor.dim()))
    return np.frombuffer(content, dtype).reshape(tuple(tensor.shape))
