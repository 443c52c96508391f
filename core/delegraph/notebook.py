"""Texts and tables -> the HTML that notebooks show (`_repr_html_`): every text escaped, for names in a file are a
stranger's."""

from __future__ import annotations

from html import escape

from delegraph.errors import printable
from delegraph.tables import Table

__all__ = ["folded", "paragraph", "table"]


def paragraph(text: str) -> str:
    """`text` by itself."""
    return f"<p>{_shown(text)}</p>"


def table(content: Table) -> str:
    """A table, numbers flush right; nothing where there are no rows."""
    if not content.rows:
        return ""
    caption = f"<caption>{_shown(content.title)}</caption>" if content.title else ""
    heads = "".join(f"<th>{_shown(column)}</th>" for column in content.columns)
    body = "".join(f"<tr>{_cells(content, row)}</tr>" for row in content.rows)
    return f"<table>{caption}<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def folded(title: str, *html: str) -> str:
    """Long content behind a title that opens it; nothing where there is nothing."""
    inside = "".join(html)
    return f"<details><summary>{_shown(title)}</summary>{inside}</details>" if inside else ""


def _cells(content: Table, row: tuple[str, ...]) -> str:
    sides = ("right" if column in content.right else "left" for column in content.columns)
    cells = zip(row, sides, strict=True)
    return "".join(f'<td style="text-align: {side}">{_shown(text)}</td>' for text, side in cells)


def _shown(text: str) -> str:
    return escape(printable(text))
