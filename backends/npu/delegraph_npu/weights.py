"""int8 weights -> a compressed stream -> int8 weights, without loss.

A Golomb-Rice code: the weights are numbered without signs (0, -1, 1, -2, ...: `zigzag`), and each number z is
written as z >> k ones and a zero, then the low k bits of z. The k of a stream is the one that makes it smallest; k = 8
means that the numbers are stored as they are. All quotients lie before all remainders, so that a machine (and NumPy)
can read both in parallel:

    u32 count | u32 k | u32 bytes of quotients | quotients, bits from the lowest | remainders, likewise

R. F. Rice, "Some practical universal noiseless coding techniques", JPL 79-22, 1979.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from delegraph.errors import DelegateInvalidCompatibility
from delegraph.interfaces import Buffer

__all__ = ["compress", "decompress", "store"]

_HEADER: Final = struct.Struct("<III")
_RAW: Final = 8


def compress(weights: NDArray[np.int8]) -> bytes:
    """The stream of `weights`, in the order in which they lie."""
    zigzag = _zigzag(weights)
    lengths = [int(np.sum(zigzag >> k, dtype=np.int64)) + (k + 1) * zigzag.size for k in range(_RAW)]
    return _stream(zigzag, int(np.argmin([*lengths, _RAW * zigzag.size])))


def store(weights: NDArray[np.int8]) -> bytes:
    """A stream of `weights` that is not compressed, for commands on weights that need no decoding."""
    return _stream(_zigzag(weights), _RAW)


def _zigzag(weights: NDArray[np.int8]) -> NDArray[np.uint8]:
    wide = np.ascontiguousarray(weights).reshape(-1).astype(np.int16)
    return np.where(wide < 0, -2 * wide - 1, 2 * wide).astype(np.uint8)


def _stream(zigzag: NDArray[np.uint8], k: int) -> bytes:
    quotients = b"" if k == _RAW else _unary(zigzag >> k)
    remainders = np.unpackbits(zigzag[:, None], axis=1, count=k, bitorder="little")
    return (
        _HEADER.pack(zigzag.size, k, len(quotients)) + quotients + np.packbits(remainders, bitorder="little").tobytes()
    )


def _unary(quotients: NDArray[Any]) -> bytes:
    ends = np.cumsum(quotients.astype(np.int64) + 1) - 1
    bits = np.ones(int(ends[-1]) + 1 if ends.size else 0, np.uint8)
    bits[ends] = 0
    return np.packbits(bits, bitorder="little").tobytes()


def decompress(stream: Buffer, count: int) -> NDArray[np.int8]:
    """The `count` weights of a stream. Raises `DelegateInvalidCompatibility` if it has others, or is damaged."""
    data = np.frombuffer(stream, np.uint8)
    if data.size < _HEADER.size:
        raise _refused(f"{data.size} bytes have no header")
    written, k, nbytes = _HEADER.unpack_from(data.data)
    if written != count or k > _RAW:
        raise _refused(f"it has {written} weights with k = {k}; the command needs {count}")
    body = data[_HEADER.size :]
    remainder_nbytes = -(-count * k // 8)
    if body.size != nbytes + remainder_nbytes:
        raise _refused(f"{body.size} bytes where {nbytes} + {remainder_nbytes} were to follow")
    bits = np.unpackbits(body[nbytes:], count=count * k, bitorder="little").reshape(count, k)
    zigzag: NDArray[Any] = np.packbits(bits, axis=1, bitorder="little").reshape(-1) if k else np.zeros(count, np.uint8)
    if k < _RAW:
        zigzag = zigzag + (_quotients(body[:nbytes], count, 255 >> k) << k)
    return np.where(zigzag & 1, -((zigzag.astype(np.int16) + 1) >> 1), zigzag >> 1).astype(np.int8)


def _quotients(unary: NDArray[np.uint8], count: int, largest: int) -> NDArray[np.int64]:
    ends = np.flatnonzero(np.unpackbits(unary, bitorder="little") == 0)[:count]
    if len(ends) < count:
        raise _refused(f"{len(ends)} of {count} quotients end")
    quotients = np.diff(ends, prepend=-1) - 1
    if count and int(quotients.max()) > largest:
        raise _refused(f"a quotient of {int(quotients.max())}, and {largest} is the largest of 8 bits")
    return quotients


def _refused(reason: str) -> DelegateInvalidCompatibility:
    return DelegateInvalidCompatibility(f"a stream of weights of NpuBackend: {reason}")
