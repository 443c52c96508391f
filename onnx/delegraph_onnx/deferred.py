"""Weights of a graph that take no memory until somebody reads them.

    model's tensor, bfloat16 ── widened ── transposed        made when it is read, and let go afterwards

A backend that computes in float32 would otherwise hold a model's weights two or three times at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray

from delegraph.aot.authoring import as_array, numpy_dtype

__all__ = ["Deferred"]

_Array = NDArray[Any]


class Deferred(ir.LazyTensor):
    """A constant whose array `read` makes, each time, in the dtype in which the model has it; `numpy` widens it to the
    graph's `dtype`. `read` may give a view that is not contiguous. Two of one `identity` have the same content; None
    says nothing."""

    def __init__(
        self,
        name: str,
        read: Callable[[], _Array],
        shape: Sequence[int],
        stored: np.dtype[Any],
        dtype: np.dtype[Any],
        identity: Hashable = None,
    ) -> None:
        self.read, self.stored, self.identity = read, stored, identity
        super().__init__(self._tensor_of, ir.DataType.from_numpy(dtype), ir.Shape(shape), name=name)

    @classmethod
    def of(cls, name: str, tensor: torch.Tensor, dtype: np.dtype[Any]) -> Deferred:
        """The content of a model's tensor."""
        stored = numpy_dtype(tensor.dtype)
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()) if tensor.numel() else None
        return cls(name, lambda: as_array(tensor), tuple(tensor.shape), stored, dtype, place)

    @classmethod
    def joined(cls, name: str, parts: Sequence[ir.TensorProtocol], dim: int) -> Deferred:
        """`parts`, of one dtype, behind each other along `dim`."""
        shape = list(parts[0].shape.numpy())
        shape[dim] = sum(part.shape.numpy()[dim] for part in parts)
        dtype = parts[0].dtype.numpy()
        narrow = {part.stored for part in parts if isinstance(part, Deferred)}
        if len(narrow) == 1 and all(isinstance(part, Deferred) for part in parts):
            readers = [part.read for part in parts if isinstance(part, Deferred)]
            stored = narrow.pop()
        else:
            readers, stored = [part.numpy for part in parts], dtype
        identities = tuple(getattr(part, "identity", None) for part in parts)
        identity = None if None in identities else ("joined", dim, identities)
        return cls(name, lambda: np.concatenate([read() for read in readers], dim), shape, stored, dtype, identity)

    def transposed(self, name: str) -> Deferred:
        """Its transpose."""
        identity = None if self.identity is None else ("transposed", self.identity)
        shape = tuple(self.shape.numpy())[::-1]
        return Deferred(name, lambda: self.read().T, shape, self.stored, self.dtype.numpy(), identity)

    def narrowed(self, name: str, dtype: np.dtype[Any]) -> Deferred:
        """The same numbers in `dtype`, which holds them."""
        identity = None if self.identity is None else ("narrowed", str(dtype), self.identity)
        return Deferred(name, lambda: self.read().astype(dtype, copy=False), self.shape.numpy(), dtype, dtype, identity)

    def _tensor_of(self) -> ir.Tensor[Any]:
        return ir.Tensor(widened(np.asarray(self.read(), order="C"), self.dtype.numpy()), name=self.name)


def widened(array: _Array, dtype: np.dtype[Any]) -> _Array:
    """`array` as `dtype`, over the same memory if it has it already."""
    if array.dtype == ml_dtypes.bfloat16 and dtype == np.float32:  # a shift, in a tenth of the time of a cast
        wide = array.view(np.uint16).astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    return array.astype(dtype, copy=False)
