"""The tree of exceptions -> the page of what each means and what to do about it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from delegraph import errors

__all__ = ["REMEDY", "children", "errors_page", "meaning"]

REMEDY = "What to do: "
"""How the paragraph of a class's docstring begins that says what helps."""

_HEAD = """# Errors and what to do

Everything that Delegraph raises on purpose is a `DelegraphError`. The message says what happened, where and why, and
what to do in this case; this page says what helps with its kind. Generated from the classes.

At run time, `code` is ExecuTorch's error code of that name.
"""


def errors_page() -> str:
    """The page's Markdown: a table of all, then a section for each, parents before their children."""
    classes = list(_tree(errors.DelegraphError))
    rows = [f"| {'·  ' * depth}[`{kind.__name__}`](#{kind.__name__}) | {_code(kind)} |" for kind, depth in classes]
    table = "\n".join(["| error | code |", "| --- | --- |", *rows, ""])
    return "\n".join([_HEAD, table, *(_section(kind) for kind, _ in classes)])


def children(kind: type) -> list[type]:
    """The classes of `delegraph.errors` right below one of them, in the order of the file."""
    ours = [getattr(errors, name) for name in errors.__all__]
    classes = [cls for cls in ours if isinstance(cls, type) and kind in cls.__bases__]
    return sorted(classes, key=lambda cls: inspect.getsourcelines(cls)[1])


def meaning(kind: type) -> tuple[str, str]:
    """A class's own words, and what helps; "" if it does not say."""
    text, _, remedy = (inspect.getdoc(kind) or "").partition(REMEDY)
    return text.strip(), " ".join(remedy.split())


def _tree(kind: type, depth: int = 0) -> Iterator[tuple[type, int]]:
    yield kind, depth
    for child in children(kind):
        yield from _tree(child, depth + 1)


def _code(kind: type) -> str:
    return f"`0x{kind.code:02x}`" if issubclass(kind, errors.RuntimeFault) else ""


def _section(kind: type) -> str:
    text, remedy = meaning(kind)
    above = [base.__name__ for base in kind.__bases__ if base is not Exception]
    lines = [f"## {kind.__name__} {{ #{kind.__name__} }}\n", f"{text}\n"]
    if remedy:
        lines.append(f"**{REMEDY.strip()}** {remedy}\n")
    if above:
        lines.append(f"Caught as {' and as '.join(f'`{name}`' for name in above)}.\n")
    return "\n".join(lines)
