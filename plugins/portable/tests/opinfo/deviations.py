"""Where a kernel differs from torch on purpose -> why. Everything else that differs is a failure."""

from __future__ import annotations

from typing import Final

from plugins.portable.tests.opinfo.entries import EntryResult

__all__ = ["DEVIATIONS", "reason", "unexplained"]

DEVIATIONS: Final[dict[tuple[str, str], str]] = {}
"""(operator, dtype; "*" is all) -> who is right, and why."""


def reason(op: str, dtype: str) -> str | None:
    return DEVIATIONS.get((op, dtype)) or DEVIATIONS.get((op, "*"))


def unexplained(result: EntryResult) -> list[str]:
    """The failures for which there is no reason in `DEVIATIONS`."""
    return [
        f"{op} on {dtype}: {cell.failed} of {cell.compared} fail: {cell.message}"
        for op, row in sorted(result.cells.items())
        for dtype, cell in row.items()
        if cell.failed and reason(op, dtype) is None
    ]
