"""Weight -> its bytes and layout as a file has them: contiguous or channels last, a view of its memory if possible."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import FakeTensor

from delegraph.aot.graph.tensor_spec import spec_of_tensor
from delegraph.aot.torch_internals import is_traceable_wrapper_subclass
from delegraph.errors import LoweringError
from delegraph.program.flat_tensor import ExternalData, TensorLayout

__all__ = ["external_data", "have_same_bytes", "layout_of", "memory_of", "storage_bytes", "tensor_bytes"]


def tensor_bytes(tensor: torch.Tensor, dim_order: Sequence[int]) -> memoryview:
    """The bytes of `tensor` in memory order of `dim_order`; a view where it lies so already, else a copy.

    Raises `LoweringError` for a tensor without data.
    """
    if isinstance(tensor, FakeTensor) or tensor.is_meta:
        raise LoweringError(
            f"a weight of shape {tuple(tensor.shape)} has no data (a fake or meta tensor); export the real model"
        )
    dense = tensor.detach().cpu().resolve_conj().resolve_neg().permute(tuple(dim_order)).contiguous()
    array: NDArray[np.uint8] = dense.reshape(-1).view(torch.uint8).numpy()
    return array.data


def memory_of(tensor: torch.Tensor) -> Hashable | None:
    """Two tensors of one such key are one: the same bytes, read in the same way. None where there are none to compare.

    None for tensors without elements or data, and for those that wrap others.
    """
    if is_traceable_wrapper_subclass(tensor) or isinstance(tensor, FakeTensor) or not tensor.numel():
        return None
    if not tensor.data_ptr():
        return None
    return tensor.data_ptr(), tensor.device, tensor.dtype, tuple(tensor.shape), tensor.stride()


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The whole memory that a tensor is of, uint8, without a copy."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def have_same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether they hold the same bytes, of the same dtype and shape."""
    if a is b:
        return True
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if (memory := memory_of(a)) is not None and memory == memory_of(b):
        return True
    contiguous = (tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (a, b))
    return torch.equal(*contiguous)


def layout_of(tensor: torch.Tensor) -> TensorLayout:
    """How a file has `tensor`, a weight: contiguous unless it is channels last."""
    spec = spec_of_tensor(tensor)
    return TensorLayout(spec.scalar_type, spec.sizes, spec.dim_order)


def external_data(tensor: torch.Tensor, alignment: int = 1) -> ExternalData:
    """The entry of a `.ptd` for `tensor`, an external constant. Raises as `tensor_bytes`."""
    layout = layout_of(tensor)
    return ExternalData(tensor_bytes(tensor, layout.dim_order), layout, alignment)
