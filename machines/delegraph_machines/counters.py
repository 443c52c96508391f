"""A device's counters for each operator (JSON in the metadata of an event) -> columns, and a table.

A runtime logs an event for each operator with `metadata=json.dumps({"cycles": …, "energy_pj": …}).encode()`. Readers
are `parse_counters` for an Inspector (ExecuTorch's or ours), and `counters_text` for a traced run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from delegraph.devtools import event_counters

if TYPE_CHECKING:
    from delegraph.runtime import ProfileEvent

__all__ = ["counters_text", "operator_counters", "parse_counters"]


def parse_counters(metadatas: Sequence[str | bytes]) -> dict[str, float]:
    """The means of the counters of one operator, with a text for each run. For
    `Inspector(delegate_metadata_parser=parse_counters)`, whose tables then have a column for each.

    Text that is no JSON object of numbers, such as another backend's, has no columns.
    """
    runs = [counters for counters in map(event_counters, metadatas) if counters]
    return {name: sum(run.get(name, 0) for run in runs) / len(runs) for name in (runs[0] if runs else {})}


def operator_counters(events: Iterable[ProfileEvent]) -> list[tuple[str, dict[str, float]]]:
    """Name and counters of each operator among the `events` of a run, those with the most cycles first; an operator
    that ran in several delegates, or several times, occurs as often."""
    by_operator = [
        (event.name, event_counters(event.metadata)) for event in events if event.delegate_debug_id is not None
    ]
    return sorted(((name, told) for name, told in by_operator if told), key=lambda entry: -entry[1].get("cycles", 0))


def counters_text(events: Iterable[ProfileEvent]) -> str:
    """A table of `operator_counters`, with each operator's part of all cycles."""
    operators = operator_counters(events)
    whole = sum(told.get("cycles", 0) for _, told in operators) or 1
    names = list(dict.fromkeys(name for _, told in operators for name in told))
    rows = [["operator", "of all cycles", *names]]
    for name, told in operators:
        cells = (f"{told[key]:,.0f}" if key in told else "" for key in names)
        rows.append([name, f"{told.get('cycles', 0) / whole:.1%}", *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )
