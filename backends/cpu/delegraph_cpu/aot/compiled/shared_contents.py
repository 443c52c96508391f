"""Weights of all partitions -> a key for each that occurs again, in its partition or in another, and its bytes, once.

Weights that are made when they are read (`Deferred`) are read once for all partitions that have them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from delegraph_cpu.aot.compiled.beside import key_of
from delegraph_cpu.blob import bytes_of
from delegraph_onnx.deferred import Deferred

__all__ = ["SharedContents", "content_bytes"]

SHARED_BYTES: Final = 4096
"""Weights from this size are shared between delegates: named data begins on a page of its own."""

_HEAD: Final = 64
"""Bytes that differ for most weights, so that others are not read."""


def content_bytes(tensor: ir.TensorProtocol) -> memoryview:
    """The bytes of a constant, as its graph has it."""
    return bytes_of(np.asarray(tensor.numpy(), order="C")).toreadonly()


class SharedContents:
    """Keys of weights, and the contents behind these keys: they are held as long as this is."""

    def __init__(self) -> None:
        self._keys: dict[Hashable, str] = {}
        self._contents: dict[str, memoryview] = {}

    def keys(
        self, partitions: Sequence[Mapping[str, ir.TensorProtocol]], kept_beside: Sequence[bool]
    ) -> list[dict[str, str]]:
        """For each partition the keys, by name, of the weights that occur again, in it, in another one or in its
        fall-back, which those have that are `kept_beside`."""
        large = [{n: t for n, t in own.items() if t.nbytes >= SHARED_BYTES} for own in partitions]
        places = [{name: _place(tensor) for name, tensor in own.items()} for own in large]
        tensors = {places[i][name]: tensor for i, own in enumerate(large) for name, tensor in own.items()}
        heads = {place: (tensor.nbytes, _head(tensor)) for place, tensor in tensors.items()}
        again = [own for own, kept in zip(places, kept_beside, strict=True) if kept]
        seen = Counter(heads[place] for own in (*places, *again) for place in own.values())
        for place, tensor in tensors.items():
            if seen[heads[place]] > 1:
                self._keys[place] = self._key(tensor)
        keys = [{n: self._keys[place] for n, place in own.items() if place in self._keys} for own in places]
        kept_keys = [own for own, kept in zip(keys, kept_beside, strict=True) if kept]
        owners = Counter(key for own in (*keys, *kept_keys) for key in own.values())
        for key in [key for key in self._contents if owners[key] < 2]:
            del self._contents[key]
        return [{name: key for name, key in own.items() if owners[key] > 1} for own in keys]

    def bytes_of(self, key: str) -> memoryview:
        """The content behind a key of `keys`."""
        return self._contents[key]

    def _key(self, tensor: ir.TensorProtocol) -> str:
        content = content_bytes(tensor)
        key = key_of(content)
        self._contents.setdefault(key, content)
        return key


def _place(tensor: ir.TensorProtocol) -> Hashable:
    """Two tensors of one place have one content."""
    identity = tensor.identity if isinstance(tensor, Deferred) else None
    return id(tensor) if identity is None else (tensor.dtype, identity)


def _head(tensor: ir.TensorProtocol) -> bytes:
    array = tensor.read() if isinstance(tensor, Deferred) else tensor.numpy()
    return np.array(array.flat[:_HEAD]).tobytes()
