"""Results as they come -> the same, with how far it is on standard error: a bar on a terminal, else lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from delegraph_testkit.outcomes import Result

__all__ = ["told"]

_EVERY: Final = 30.0
"""Seconds between two lines where there is no terminal: a log should say that it goes on."""


def told(results: Iterable[Result], total: int, name: str) -> Iterator[Result]:
    """`results`, of which `total` are to come for the plug-in `name`."""
    return (_bar if sys.stderr.isatty() else _lines)(results, total, name)


def _bar(results: Iterable[Result], total: int, name: str) -> Iterator[Result]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=total)
        for result in results:
            bar.update(task, advance=1, description=f"{name}: {result.check}")
            yield result


def _lines(results: Iterable[Result], total: int, name: str) -> Iterator[Result]:
    last, faults = monotonic(), 0
    for number, result in enumerate(results, 1):
        faults += result.is_fault
        if monotonic() - last > _EVERY:
            last = monotonic()
            print(f"{name}: {number:,} of {total:,} checks, {faults} faults; {result.check}", file=sys.stderr)
        yield result
