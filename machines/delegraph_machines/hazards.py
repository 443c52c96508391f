"""A command stream's accesses, in order -> the first that touches bytes of an unfinished transfer.

A transfer runs beside the following commands, until its channel is waited for. Until then nothing may read the bytes
that it writes, nor write bytes that it reads or writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from delegraph.lazy_dataclass import dataclass

__all__ = ["Hazard", "Hazards", "Range"]


@dataclass(frozen=True, slots=True)
class Range:
    """The bytes from `begin` up to, not including, `end` of `memory`."""

    memory: str
    begin: int
    end: int

    def overlaps(self, other: Range) -> bool:
        """Whether the two have a byte in common."""
        return self.memory == other.memory and self.begin < other.end and other.begin < self.end


class Hazard(ValueError):
    """An access to bytes of a transfer that may be unfinished."""


@dataclass(frozen=True, slots=True)
class _Accesses:
    reads: tuple[Range, ...]
    writes: tuple[Range, ...]


class Hazards:
    """Unfinished transfers, by channel. Transfers of one channel run in order; those of different channels in any
    order."""

    def __init__(self) -> None:
        self._channels: dict[int, list[_Accesses]] = defaultdict(list)

    def start(self, channel: int, reads: Iterable[Range], writes: Iterable[Range]) -> None:
        """A transfer begins. Raises `Hazard` if one on another channel may still touch the same bytes."""
        transfer = _Accesses(tuple(reads), tuple(writes))
        self._check(transfer, f"a transfer on channel {channel}", besides=channel)
        self._channels[channel].append(transfer)

    def wait(self, channel: int) -> None:
        """All transfers that were started on `channel` are done."""
        self._channels.pop(channel, None)

    def access(self, reads: Iterable[Range], writes: Iterable[Range]) -> None:
        """A command reads and writes. Raises `Hazard` if a transfer may still touch the same bytes."""
        self._check(_Accesses(tuple(reads), tuple(writes)), "a command")

    def unfinished(self) -> list[int]:
        """The channels that nobody has waited for, in order."""
        return sorted(self._channels)

    def _check(self, new: _Accesses, who: str, besides: int | None = None) -> None:
        for channel, transfers in self._channels.items():
            if channel == besides:
                continue
            for old in transfers:
                for mine, theirs, what in (
                    (new.reads, old.writes, "reads {} before it has arrived"),
                    (new.writes, old.writes, "writes {} while it arrives"),
                    (new.writes, old.reads, "writes {} before it has left"),
                ):
                    clash = next((a for a in mine for b in theirs if a.overlaps(b)), None)
                    if clash is not None:
                        where = f"bytes {clash.begin} to {clash.end} of {clash.memory}"
                        raise Hazard(f"{who} {what.format(where)}: nothing waited for channel {channel}")
