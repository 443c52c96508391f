"""A head and arrays <-> the bytes of a blob: a container for backends that need no format of their own. No torch.

    0xBD, length of the head as u32 | head, JSON | arrays, each at the next multiple of `ALIGNMENT`

The head is a list: what the author gave, and [dtype, shape] of each array. All numbers are little-endian.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Any, Final

from delegraph.errors import DelegateInvalidCompatibility, DelegraphError
from delegraph.program.dtypes import numpy_dtype, scalar_type
from delegraph.program.schema import Buffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["pack_blob", "unpack_blob"]

ALIGNMENT: Final = 16
"""Bytes: what vector units of today's CPUs load at once."""

_PREFIX: Final = struct.Struct("<BI")
_MAGIC: Final = 0xBD


def pack_blob(head: Any, arrays: Iterable[NDArray[Any]] = ()) -> bytes:
    """The blob of a `head`, anything that JSON has, and arrays of any shape, in C order, of each dtype of torch's that
    NumPy or ml_dtypes have. The same bytes for the same content."""
    stored = [array.astype(array.dtype.newbyteorder("<"), "C", copy=False) for array in arrays]
    described = [[array.dtype.name, list(array.shape)] for array in stored]
    text = json.dumps([head, described], separators=(",", ":")).encode()
    blob = bytearray(_PREFIX.pack(_MAGIC, len(text)) + text)
    for array in stored:
        blob += bytes(-len(blob) % ALIGNMENT)
        blob += array.tobytes()
    return bytes(blob)


def unpack_blob(blob: Buffer) -> tuple[Any, list[NDArray[Any]]]:
    """The head and the arrays of a blob, which may come from a stranger: what the head says is the author's to check.

    Arrays are read-only views of `blob`. Raises `DelegateInvalidCompatibility` for what `pack_blob` has not made.
    """
    try:
        return _unpacked(memoryview(blob).cast("B"))
    except (ValueError, TypeError, struct.error, RecursionError, OverflowError, DelegraphError) as error:
        raise DelegateInvalidCompatibility(f"the blob is damaged, or somebody else's: {error}") from error


def _unpacked(blob: memoryview) -> tuple[Any, list[NDArray[Any]]]:
    import numpy as np

    magic, length = _PREFIX.unpack_from(blob)
    end = _PREFIX.size + length
    if magic != _MAGIC or end > len(blob):
        raise ValueError("its first bytes are not those of a head")
    head, described = json.loads(bytes(blob[_PREFIX.size : end]))
    arrays = []
    for name, shape in described:
        if not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"an array of shape {shape!r:.60}")
        dtype, start = numpy_dtype(scalar_type(name)), end + -end % ALIGNMENT
        end = start + prod(shape) * dtype.itemsize
        if end > len(blob):
            raise ValueError(f"{len(blob)} bytes, and an array ends at {end}")
        array = np.frombuffer(blob[start:end], dtype).reshape(shape)
        array.flags.writeable = False
        arrays.append(array)
    if end != len(blob):
        raise ValueError(f"{len(blob)} bytes, and its content ends at {end}")
    return head, arrays
