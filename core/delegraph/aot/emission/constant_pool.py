"""Weights -> buffers of the program, each content once; a buffer is a view over the tensor's storage, not a copy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch._subclasses.fake_tensor import FakeTensor

from delegraph.aot.graph.stored_tensor import tensor_bytes
from delegraph.program.files.content_pool import ContentPool
from delegraph.program.schema import Buffer

__all__ = ["ConstantPool"]


class ConstantPool:
    """Tensors' bytes, each content once. Index 0 is the reserved empty buffer, which no tensor gets."""

    def __init__(self) -> None:
        self._pool = ContentPool()
        self._by_place: dict[tuple[object, ...], int] = {}

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The file's buffers."""
        return (b"", *self._pool.buffers)

    def add_tensor(self, tensor: torch.Tensor, dim_order: Sequence[int]) -> int:
        """The index of `tensor`'s bytes. The same tensor met again costs nothing."""
        if isinstance(tensor, FakeTensor):
            tensor_bytes(tensor, dim_order)  # raises
        place = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), tuple(dim_order))
        known = self._by_place.get(place)
        if known is None:
            known = self._by_place[place] = self.add(tensor_bytes(tensor, dim_order))
        return known

    def add(self, data: Buffer) -> int:
        """The index of the buffer with this content, which is kept if it is new."""
        return self._pool.add(data) + 1
