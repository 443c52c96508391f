"""Tables for people: with rich where it is installed, else as plain text. Files and pipes get whole, unwrapped rows.

A terminal gets what fits its width, with whole words: cells are wrapped at spaces, names that are longer than their
column behind a `.`, `_`, `/` or the like; where even that has no room, a row is a block of lines, a cell in each.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from delegraph.errors import printable
from delegraph.lazy_dataclass import dataclass

__all__ = ["Table", "column_widths", "count", "milliseconds", "print_table", "print_text", "wrapped"]


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
    rows = [tuple(map(printable, row)) for row in table.rows]

    def columns() -> Iterator[Column]:
        return (Column(name, justify="right" if name in table.right else "left") for name in table.columns)

    shown = RichTable(*columns())
    for row in rows:
        shown.add_row(*map(Text, row))
    console = Console()
    natural = console.measure(shown, options=console.options.update(width=_WIDEST)).maximum
    if not sys.stdout.isatty():
        console = Console(width=max(natural, 200))
    elif natural > console.width:  # more fits without lines between the columns
        shown = RichTable(*columns(), box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        cells = list(zip(table.columns, *rows, strict=True))
        widths = column_widths(cells, table.right, console.width - _GAP * (len(cells) - 1))
        if widths is None:
            name = max(map(len, table.columns))
            shown = RichTable(Column(width=name), Column(overflow="fold"), show_header=False, box=None, pad_edge=False)
            blocks = [[*zip(table.columns, row, strict=True), ("", "")] for row in rows]
            filled: list[tuple[str, ...]] = [(key, cell) for block in blocks for key, cell in block if cell or not key]
            rows, widths = filled[:-1], [name, console.width - name - 2]
        for column, width in zip(shown.columns, widths, strict=True):
            column.header, column.width = wrapped(str(column.header), width), width
        for row in rows:
            shown.add_row(*(Text(wrapped(cell, width)) for cell, width in zip(row, widths, strict=True)))
    if table.title:
        console.print(Text(printable(table.title), style="bold"))
    console.print(shown)


def print_text(text: str) -> None:
    """Print to standard output; in a terminal, lines that are wider go on in the next line, under their own indent."""
    import shutil  # which whoever prints no table does without

    width = shutil.get_terminal_size().columns
    for line in text.splitlines() if sys.stdout.isatty() else [text]:
        indent = " " * (len(line) - len(line.lstrip()))
        fits = len(line) <= width or not sys.stdout.isatty()
        print(line if fits else indent + wrapped(line.strip(), width - len(indent)).replace("\n", f"\n{indent}"))


_WIDEST: Final = 10_000
"""Columns of a terminal that has room for all."""

_GAP: Final = 2
"""Of rich, between columns without lines."""

_PIECE: Final = re.compile(r"\s+|(?:[^\w\s]|_)*(?:\d+(?:[.,]\d+)*(?![^\W_])|[^\W_]+)(?:[^\w\s]|_)*|(?:[^\w\s]|_)+")
"""Of a name, what stays whole: a word or a number, with the signs behind it."""


def column_widths(columns: Sequence[Sequence[str]], right: frozenset[str], room: int) -> list[int] | None:
    """How wide each column is for all of them to fit in `room`, or None where words would be broken.

    A column is its header and its cells; those named in `right` are numbers, whose cells stay in one line.
    """
    natural = [max(map(len, cells)) for cells in columns]
    for split in (str.split, _PIECE.findall):
        least = []
        for header, *cells in columns:
            parts = cells if header in right else [part for cell in cells for part in split(cell)]
            least.append(max(map(len, [*split(header), *parts]), default=0))
        if sum(least) <= room:
            for most in range(room, 0, -1):
                widths = [max(low, min(high, most)) for low, high in zip(least, natural, strict=True)]
                if sum(widths) <= room:
                    return widths
    return None


def wrapped(text: str, width: int) -> str:
    """`text` in lines of at most `width`, broken at spaces, and within a longer word behind its signs."""
    lines = [""]
    for word in re.findall(r"\s*\S+", text):
        for piece in [word] if len(word.strip()) <= width else _PIECE.findall(word):
            if lines[-1] and len(lines[-1]) + len(piece) > width:
                lines.append(piece.lstrip())
            else:
                lines[-1] += piece
    return "\n".join(lines)


def count(number: int) -> str:
    """`1,234,567`."""
    return f"{number:,}"


def milliseconds(seconds: float) -> str:
    """`1.234 ms`."""
    return f"{seconds * 1e3:,.3f} ms"
