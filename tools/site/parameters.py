"""A docstring that says `name: what it is.` of its function's parameters in a paragraph -> a list of them."""

from __future__ import annotations

import re

__all__ = ["listed"]


def listed(docstring: str, names: list[str]) -> str:
    """`docstring` with a list for every paragraph that begins with one of `names` and a colon."""
    begin = re.compile(rf"(?:^|(?<=[.;] )|(?<=[.;]\n))({'|'.join(map(re.escape, names))}): ") if names else None
    return "\n\n".join(_list(paragraph, begin) for paragraph in docstring.split("\n\n")) if begin else docstring


def _list(paragraph: str, begin: re.Pattern[str]) -> str:
    if not begin.match(paragraph):
        return paragraph
    _, *parts = begin.split(paragraph)
    rows = zip(parts[::2], parts[1::2], strict=True)
    return "\n".join(f"- `{name}`: {' '.join(text.split())}" for name, text in rows)
