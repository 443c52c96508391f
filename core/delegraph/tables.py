"""Tables for people: with rich where it is installed, else as plain text. Files and pipes get whole, unwrapped rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Table", "count", "milliseconds", "print_table", "printable"]


@dataclass(frozen=True, slots=True)
class Table:
    """`right` names the columns that stand flush right: numbers. An empty title is left out."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    right: frozenset[str] = frozenset()

    def __str__(self) -> str:
        rows = [self.columns, *(tuple(map(printable, row)) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        title = [printable(self.title)] if self.title else []
        return "\n".join([*title, *(self._line(row, widths) for row in rows)])

    def _line(self, row: Sequence[str], widths: Sequence[int]) -> str:
        cells = zip(self.columns, row, widths, strict=True)
        padded = (cell.rjust(width) if column in self.right else cell.ljust(width) for column, cell, width in cells)
        return f"  {'  '.join(padded)}".rstrip()


def print_table(table: Table) -> None:
    """Print to standard output; nothing where there are no rows."""
    if not table.rows:
        return
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Column
        from rich.table import Table as RichTable
        from rich.text import Text
    except ImportError:
        print(table, end="\n\n")
        return
    columns = [Column(name, overflow="fold") for name in table.columns]
    for column in columns:
        column.no_wrap = column.header in table.right  # a number in two lines is read as two
        column.justify = "right" if column.no_wrap else "left"
    shown = RichTable(*columns)
    for row in table.rows:
        shown.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else 200)
    natural = console.measure(shown, options=console.options.update(width=_WIDEST)).maximum
    if natural > console.width:  # more fits without lines between the columns
        shown.box, shown.show_edge, shown.pad_edge = box.SIMPLE_HEAD, False, False
    if table.title:
        console.print(Text(printable(table.title), style="bold"))
    console.print(shown)


_WIDEST: Final = 10_000
"""Columns of a terminal that has room for all."""


def printable(text: str) -> str:
    """`text`, quoted where it would reach the terminal as a control sequence: names in a file are a stranger's."""
    return text if text.isprintable() else repr(text)


def count(number: int) -> str:
    """`1,234,567`."""
    return f"{number:,}"


def milliseconds(seconds: float) -> str:
    """`1.234 ms`."""
    return f"{seconds * 1e3:,.3f} ms"
