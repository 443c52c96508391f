"""Tensors in memory that somebody else owns -> plain records, which a `DeviceAllocator` imports. Nothing is copied.

read_dlpack(tensor)                 anything with __dlpack__: torch, JAX, CuPy, a camera's library
read_cuda_array_interface(array)    anything with __cuda_array_interface__: Numba, PyCUDA
DmaBuf(fd, shape, dtype)            a DMA-buf by its file descriptor: `dma_buf.py`
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

import numpy as np

from delegraph.errors import InvalidArgument, InvalidType
from delegraph.lazy_dataclass import dataclass, field
from delegraph.program.strides import dense_strides

__all__ = ["ExternalTensor", "read_cuda_array_interface"]


@dataclass(frozen=True, slots=True)
class ExternalTensor:
    """A tensor at an address of a device. `strides` are in bytes; `owner` keeps the memory alive.

    `device` is its kind, as DLPack numbers them (`dlpack.h`, DLDeviceType: 1 CPU, 2 CUDA, 12 anybody's own), and which
    of that kind; None where the protocol does not tell. `stream` is a queue of the device whose work has to be done
    before the memory is read, as the CUDA Array Interface numbers them; None: it can be read at once.
    """

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides: tuple[int, ...]
    read_only: bool
    device: tuple[int, int] | None = None
    stream: int | None = None
    owner: object = field(default=None, repr=False, compare=False)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return prod(self.shape) * self.dtype.itemsize


def read_cuda_array_interface(value: object) -> ExternalTensor:
    """The tensor that `value.__cuda_array_interface__` describes.

    Version 2 and 3 of https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html. Raises `InvalidType` for a
    value without it, and `InvalidArgument` for a description that is malformed or has a mask.
    """
    interface: Any = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        raise InvalidType(f"a {type(value).__name__} has no __cuda_array_interface__")
    try:
        pointer, read_only = interface["data"]
        shape, dtype = sizes(interface["shape"]), np.dtype(interface["typestr"])
        strides, stream, mask = (interface.get(key) for key in ("strides", "stream", "mask"))
        version, steps = interface["version"], None if strides is None else tuple(map(int, strides))
        [number] = sizes([pointer or 0])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(
            f"the __cuda_array_interface__ of a {type(value).__name__} is malformed: {type(error).__name__}: {error}"
        ) from error
    if version < 2 or mask is not None or dtype.hasobject or dtype.kind not in "biufc" or stream == 0:
        raise InvalidArgument(
            f"the __cuda_array_interface__ of a {type(value).__name__} (version {version}, {interface['typestr']!r},"
            f" mask {mask!r}, stream {stream!r}) cannot be used: numbers without a mask are, of version 2 or newer, on"
            " a stream that is not 0"
        )
    return ExternalTensor(
        number, shape, dtype, _strides(shape, dtype, steps), bool(read_only), None, stream, owner=value
    )


def _strides(shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...] | None) -> tuple[int, ...]:
    if strides is None:
        return dense_strides(shape, dtype.itemsize)
    if len(strides) != len(shape):
        raise InvalidArgument(f"a tensor of shape {list(shape)} with the strides {list(strides)}: one each is needed")
    return strides


def sizes(values: Iterable[Any]) -> tuple[int, ...]:
    """`values` as whole numbers. Raises ValueError for one that is negative, or no number."""
    numbers = tuple(map(int, values))
    if any(number < 0 for number in numbers):
        raise ValueError(f"{min(numbers)} is negative")
    return numbers
