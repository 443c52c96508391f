"""Tables of a benchmark -> the place in a page of the documentation that is theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["check_marks", "markdown", "put"]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; columns behind the first are numbers, to the right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def check_marks(page: Path | None, *names: str) -> None:
    """Raises `SystemExit` for a page without the marks that `put` looks for: before minutes of measuring, not after.
    Nothing where no page is asked for."""
    for name in names if page is not None else ():
        _parts(page, name)


def put(page: Path, name: str, text: str) -> None:
    """Replace what is between the marks `<!-- name -->` and `<!-- /name -->` of `page`.

    Raises `SystemExit` for a page without these marks.
    """
    before, after = _parts(page, name)
    page.write_text(f"{before}\n{text.strip()}\n\n{after}", "utf-8")


def _parts(page: Path, name: str) -> tuple[str, str]:
    """What is in front of the place and behind it, the marks with them."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->\n"
    text = page.read_text("utf-8") if page.is_file() else ""
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"{page} has no lines {begin.strip()} and {end.strip()}")
    return before + begin, end + after
