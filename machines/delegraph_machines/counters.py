"""A device's counters for each operator (JSON in the metadata of an event) -> columns of an Inspector's table.

A runtime logs an event for each operator with `metadata=json.dumps({"cycles": …, "energy_pj": …}).encode()`, of which
`delegraph profile` tells by itself; `parse_counters` is for an Inspector, ExecuTorch's or ours.
"""

from __future__ import annotations

from collections.abc import Sequence

from delegraph.devtools import event_counters

__all__ = ["parse_counters"]


def parse_counters(metadatas: Sequence[str | bytes]) -> dict[str, float]:
    """The means of the counters of one operator, with a text for each run. For
    `Inspector(delegate_metadata_parser=parse_counters)`, whose tables then have a column for each.

    Text that is no JSON object of numbers, such as another backend's, has no columns.
    """
    runs = [counters for counters in map(event_counters, metadatas) if counters]
    return {name: sum(run.get(name, 0) for run in runs) / len(runs) for name in (runs[0] if runs else {})}
