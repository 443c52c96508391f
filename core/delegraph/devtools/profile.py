"""The events of a traced run -> where the time went, by what was called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from delegraph.runtime.execution.tracing import ProfileEvent

__all__ = ["ProfileRow", "profile_rows"]


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """All calls of one name: how many, their time together in seconds, and that as a share of all instructions'."""

    name: str
    calls: int
    seconds: float
    share: float


def profile_rows(events: Iterable[ProfileEvent]) -> list[ProfileRow]:
    """The instructions among `events` by name, the slowest first."""
    spans: dict[str, list[int]] = {}
    for event in events:
        if event.instruction >= 0 and event.delegate_debug_id is None:
            spans.setdefault(event.name, []).append(event.duration)
    total = sum(map(sum, spans.values())) or 1
    rows = [ProfileRow(name, len(own), sum(own) / 1e9, sum(own) / total) for name, own in spans.items()]
    return sorted(rows, key=lambda row: -row.seconds)
