"""Constants -> their bytes, in the region from which programs read them, and the constants that partitions share.

alone     the region is the blob's own
shared    it is in the named data, and has the constants of all partitions that share
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from delegraph_dsp.aot.kernel_calls import KernelCall, Value

__all__ = ["WORD", "bytes_of", "digests"]

WORD = 64
"""The alignment of places in outer memory; a smaller constant is no reason to share."""


def digests(calls: Sequence[KernelCall]) -> set[bytes]:
    """The digests of the constants that calls read."""
    values = {use.view.value for call in calls for use in call.uses if use.view.value.content is not None}
    contents = map(bytes_of, values)
    return {hashlib.sha256(data).digest() for data in contents if len(data) >= WORD}


def bytes_of(value: Value) -> bytes:
    """The bytes of a constant, as they lie in memory."""
    assert value.content is not None
    return np.ascontiguousarray(value.content(), value.dtype).tobytes()
