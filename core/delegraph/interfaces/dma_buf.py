"""A tensor in a DMA-buf, which cameras, codecs and accelerators of Linux hand each other by file descriptor."""

from __future__ import annotations

import mmap
import os
import weakref
from math import prod
from struct import pack
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from delegraph.errors import InvalidArgument
from delegraph.interfaces.external_memory import sizes
from delegraph.lazy_dataclass import dataclass
from delegraph.program.strides import dense_strides

__all__ = ["DmaBuf"]

_SYNC: Final = 0x40086200
"""DMA_BUF_IOCTL_SYNC of `linux/dma-buf.h`: the CPU begins or ends to use the buffer, so that caches are right."""
_READ, _WRITE, _START, _END = 1, 2, 0, 4


@dataclass(frozen=True, slots=True)
class DmaBuf:
    """A tensor of `shape` and `dtype` that begins `offset` bytes into the buffer behind `fd`.

        frame = DmaBuf(fd, (1, 480, 640, 3), np.uint8)
        scores = run(frame)                             # as an input

    `strides` are in bytes, none of them negative; None: C-contiguous. `fd` stays the caller's, who closes it when he
    likes. A memfd or another file that can be mapped does as well; it may not get smaller while it is in use.
    Raises `InvalidArgument` for numbers that make no sense.
    """

    fd: int
    shape: tuple[int, ...]
    dtype: Any
    """Any of NumPy's ways to say it; a `numpy.dtype` from then on."""
    offset: int = 0
    strides: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        try:
            shape, dtype = sizes(self.shape), _dtype(self.dtype)
            strides = dense_strides(shape, dtype.itemsize) if self.strides is None else sizes(self.strides)
            [offset, fd] = sizes((self.offset, self.fd))
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"{self._text()}: {error}") from error
        if len(strides) != len(shape):
            raise InvalidArgument(f"{self._text()}: {len(strides)} strides for {len(shape)} dims")
        for name, value in (("shape", shape), ("dtype", dtype), ("strides", strides), ("offset", offset), ("fd", fd)):
            object.__setattr__(self, name, value)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return prod(self.shape) * int(self.dtype.itemsize)

    def require_inside(self) -> None:
        """Raise `InvalidArgument` unless the buffer behind `fd` is there and the tensor lies in it."""
        try:
            # A DMA-buf says its size by its end alone; of a file, whose position is its owner's, it is known.
            size = os.fstat(self.fd).st_size or os.lseek(self.fd, 0, os.SEEK_END)
        except OSError as error:
            raise InvalidArgument(f"{self._text()}: {error}") from error
        if self.offset + self._span > size:
            raise InvalidArgument(
                f"{self._text()}: the tensor ends at byte {self.offset + self._span:,}, and the buffer has {size:,}"
            )

    def map(self, *, writable: bool = False) -> NDArray[Any]:
        """The tensor, mapped into the CPU's memory for as long as an array over it lives. Raises `InvalidArgument`."""
        self.require_inside()
        if not self._span:
            return np.empty(self.shape, self.dtype)
        begins = self.offset % mmap.ALLOCATIONGRANULARITY
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        try:
            memory = mmap.mmap(self.fd, begins + self._span, access=access, offset=self.offset - begins)
        except (OSError, ValueError) as error:
            raise InvalidArgument(f"{self._text()} cannot be mapped: {error}") from error
        flags = _READ | _WRITE if writable else _READ
        if _sync(self.fd, flags | _START):
            # The caller may close his descriptor before the array goes, and the buffer has to hear of that.
            weakref.finalize(memory, _end, os.dup(self.fd), flags)
        return np.ndarray(self.shape, self.dtype, memory, begins, self.strides)

    @property
    def _span(self) -> int:
        """Bytes from the first element to the end of the last."""
        assert self.strides is not None
        steps = (step * (size - 1) for size, step in zip(self.shape, self.strides, strict=True))
        return sum(steps) + int(self.dtype.itemsize) if self.nbytes else 0

    def _text(self) -> str:
        return f"DmaBuf(fd={self.fd}, {self.shape}, {self.dtype}, offset={self.offset})"


def _sync(fd: int, flags: int) -> bool:
    """Tell the buffer what the CPU does; whether it is one that wants to know, which a memfd does not."""
    try:
        from fcntl import ioctl

        ioctl(fd, _SYNC, pack("=Q", flags))
    except (ImportError, OSError):
        return False
    return True


def _end(fd: int, flags: int) -> None:
    _sync(fd, flags | _END)
    os.close(fd)


def _dtype(dtype: DTypeLike) -> np.dtype[Any]:
    known = np.dtype(dtype)
    if known.hasobject or not known.itemsize:
        raise ValueError(f"elements of {known} have no bytes of their own")
    return known
