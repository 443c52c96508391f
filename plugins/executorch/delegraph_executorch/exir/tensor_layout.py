"""How the bytes of a tensor lie in a file (ExecuTorch `exir/tensor_layout.py`)."""

from dataclasses import dataclass

import torch

from delegraph.program.schema import ScalarType
from delegraph_executorch.exir.tensor import dim_order_from_stride, scalar_type_enum

__all__ = ["TensorLayout"]


@dataclass
class TensorLayout:
    """Element type, sizes, and dims from outer to inner."""

    scalar_type: ScalarType
    sizes: list[int]
    dim_order: list[int]

    @classmethod
    def from_tensor(cls, tensor: torch.Tensor) -> "TensorLayout":
        """The layout of a dense tensor. Raises ValueError for another."""
        formats = (torch.contiguous_format, torch.channels_last)
        if not any(tensor.is_contiguous(memory_format=one) for one in formats):
            raise ValueError("the tensor is neither contiguous nor channels last; call .contiguous() first")
        return cls(scalar_type_enum(tensor.dtype), list(tensor.shape), list(dim_order_from_stride(tensor.stride())))
