"""Constants -> their bytes, in the region that programs read them from, and what partitions may have in common.

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
"""What places in outer memory are multiples of; a constant that is smaller is no reason to share."""


def digests(calls: Sequence[KernelCall]) -> set[bytes]:
    """Of the constants that calls read."""
    values = {use.view.value for call in calls for use in call.uses if use.view.value.content is not None}
    contents = map(bytes_of, values)
    return {hashlib.sha256(data).digest() for data in contents if len(data) >= WORD}


def bytes_of(value: Value) -> bytes:
    """What a constant holds, as it lies in memory."""
    assert value.content is not None
    return np.ascontiguousarray(value.content(), value.dtype).tobytes()
