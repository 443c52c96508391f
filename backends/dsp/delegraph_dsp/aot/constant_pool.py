"""Constants -> the region that programs read them from, each content once; and which partitions have one in common.

alone     the region is the blob's own
shared    it is in the named data, and has the constants of all partitions that share
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from delegraph_dsp.aot.kernel_calls import KernelCall, Value
from delegraph_dsp.program import BACKEND_ID

__all__ = ["WORD", "ConstantPool", "sharing"]

WORD = 64
"""What places in outer memory are multiples of; a constant that is smaller is no reason to share."""


@dataclass(slots=True)
class ConstantPool:
    """The region as it grows."""

    content: bytearray = field(default_factory=bytearray)
    _places: dict[bytes, int] = field(default_factory=dict)

    def place(self, value: Value) -> int:
        """Where what a constant holds is."""
        data = _bytes(value)
        if data not in self._places:
            self.content += bytes(-len(self.content) % WORD)
            self._places[data] = len(self.content)
            self.content += data
        return self._places[data]

    @property
    def key(self) -> str:
        """Its key in the named data."""
        return f"{BACKEND_ID}/{hashlib.sha256(self.content).hexdigest()}"


def sharing(partitions: Sequence[Sequence[KernelCall]]) -> list[bool]:
    """For the calls of each partition whether another one reads a constant of theirs."""
    digests = [_digests(calls) for calls in partitions]
    owners = Counter(digest for found in digests for digest in found)
    return [any(owners[digest] > 1 for digest in found) for found in digests]


def _digests(calls: Sequence[KernelCall]) -> set[bytes]:
    values = {use.view.value for call in calls for use in call.uses if use.view.value.content is not None}
    contents = map(_bytes, values)
    return {hashlib.sha256(data).digest() for data in contents if len(data) >= WORD}


def _bytes(value: Value) -> bytes:
    """What a constant holds, as it lies in memory."""
    assert value.content is not None
    return np.ascontiguousarray(value.content(), value.dtype).tobytes()
