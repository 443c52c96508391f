"""Contents -> a region of a machine's memory with each content once; and which partitions share contents.

A region of one partition lies in its blob; a shared one lies in the named data, under its `key`.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence, Set

from delegraph.lazy_dataclass import dataclass, field

__all__ = ["RegionPool", "sharing"]


@dataclass(slots=True)
class RegionPool:
    """A backend's region as it grows; places in it are multiples of `alignment` bytes."""

    backend_id: str
    alignment: int = 1
    content: bytearray = field(default_factory=bytearray)
    _places: dict[bytes, int] = field(default_factory=dict)

    def place(self, data: bytes) -> int:
        """The place of `data`, which is appended if it is new."""
        if data not in self._places:
            self.content += bytes(-len(self.content) % self.alignment)
            self._places[data] = len(self.content)
            self.content += data
        return self._places[data]

    @property
    def key(self) -> str:
        """Its key in the named data."""
        return f"{self.backend_id}/{hashlib.sha256(self.content).hexdigest()}"


def sharing(contents: Sequence[Set[bytes]]) -> list[bool]:
    """For the contents of each partition, or their digests, whether another partition has one of them."""
    owners = Counter(content for partition in contents for content in partition)
    return [any(owners[content] > 1 for content in partition) for partition in contents]
