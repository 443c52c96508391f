"""Tables of a benchmark -> the place in a page of the documentation that is theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["markdown", "put"]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; columns behind the first are numbers, to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def put(page: Path, name: str, text: str) -> None:
    """Replace what is between the marks `<!-- name -->` and `<!-- /name -->` of `page`.

    Raises `SystemExit` for a page without these marks.
    """
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    before, found, rest = page.read_text("utf-8").partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{page} has no lines {begin.strip()} and {end.strip()}")
    page.write_text(f"{before}{begin}\n{text.strip()}\n\n{end}{after}", "utf-8")
