"""Weights -> buffers of the program, each content once; a buffer is a view over the tensor's storage, not a copy."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch._subclasses.fake_tensor import FakeTensor

from delegraph.errors import LoweringError
from delegraph.program.schema import Buffer

__all__ = ["ContentPool", "tensor_bytes"]

_HEAD = 64
"""Bytes that are compared before any hash: equal-sized buffers that differ there are never hashed."""


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


class ContentPool:
    """Buffers by content. Index 0 is the reserved empty one.

    A buffer is hashed (SHA-256) only when another of its size and beginning is there.
    """

    def __init__(self) -> None:
        self.buffers: list[Buffer] = [b""]
        self._by_place: dict[tuple[object, ...], int] = {}
        self._first_alike: dict[tuple[int, bytes], int] = {}
        self._by_digest: dict[bytes, int] = {}

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
        key = (len(data), bytes(data[:_HEAD]))
        alike = self._first_alike.get(key)
        if alike is None:
            self._first_alike[key] = self._append(data)
            return self._first_alike[key]
        self._by_digest.setdefault(hashlib.sha256(self.buffers[alike]).digest(), alike)
        digest = hashlib.sha256(data).digest()
        if digest not in self._by_digest:
            self._by_digest[digest] = self._append(data)
        return self._by_digest[digest]

    def _append(self, data: Buffer) -> int:
        self.buffers.append(data)
        return len(self.buffers) - 1
