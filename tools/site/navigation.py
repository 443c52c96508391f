"""The navigation as it is written in mkdocs.yml -> the same with the pages of the modules in it."""

from __future__ import annotations

from typing import Any, Final

from tools.site.api_page import PUBLIC

__all__ = ["expanded"]

_MODULES: Final = "reference/*"
"""The pages that stand for them: whoever makes a module public has nothing to do here."""


def expanded(nav: Any) -> Any:
    """`nav`, a list of pages and sections, with a list of pages wherever it says `reference/*`."""
    match nav:
        case str():
            return [f"reference/{module}.md" for module in PUBLIC] if nav == _MODULES else nav
        case dict():
            return {title: expanded(part) for title, part in nav.items()}
    return [expanded(part) for part in nav]
