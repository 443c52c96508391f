"""Cells and an author's claims -> what breaks the numeric contract, in words.

A plug-in's results equal torch's, or it declines a node with a reason, or its author says why they differ, which is no
excuse where they are integers or NaN. What is said and no longer so is a fault as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from delegraph_testkit.claims import Claims
from delegraph_testkit.numerics.sweep import Cell

__all__ = ["breaches"]


def breaches(claims: Claims, entry: str, dtype: str, cell: Cell) -> Iterator[str]:
    """Differences of a cell from torch's that have no reason; and reasons for which nothing differs."""
    excused = {row.kind for row in claims.deviations if row.is_of(entry, dtype)}
    for kind, message in cell.deviations.items():
        if kind not in excused:
            yield f"{entry} of {dtype} deviates in {kind}: {message}"
    named = {row.kind for row in claims.deviations if row.everywhere and row.names(entry, dtype)}
    for kind in sorted(named - cell.deviations.keys()):
        yield f"{entry} of {dtype} no longer deviates in {kind}: take it out of the claims"
