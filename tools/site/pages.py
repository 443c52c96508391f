"""The repository -> the site's pages that nobody writes: those that lie beside docs/, and the reference."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tools.site.api_page import PUBLIC, about, names_of, summary
from tools.site.cli_page import cli_page
from tools.site.errors_page import errors_page
from tools.site.groups_page import groups_page
from tools.site.links import AROUND
from tools.site.names import anchor, home

__all__ = ["ROOT", "generated"]

_FOUND_LATER: Final = "---\nsearch:\n  boost: 0.3\n---\n"
"""A search shows guides and tutorials before it."""

ROOT: Final = Path(__file__).resolve().parents[2]


def generated() -> dict[str, str]:
    """Path on the site -> Markdown."""
    around = {page: (ROOT / file).read_text("utf-8") for file, page in AROUND.items() if page != "index.md"}
    reference = {"cli": cli_page(), "entry-points": groups_page(), "errors": errors_page()}
    reference |= {module: _module(module) for module in PUBLIC}
    return around | {f"reference/{name}.md": text for name, text in reference.items()}


def _module(module: str) -> str:
    """A page of the reference: every public name of `module`, in full where it is at home."""
    return "\n".join(
        [_FOUND_LATER, f"# {module}\n", f"{about(module)}\n", *(_name(module, name) for name in names_of(module))]
    )


def _name(module: str, name: str) -> str:
    path = anchor(module, name)
    if home(module, name) == module:
        return (f"[](){{#{module}.{name}}}\n\n" if path != f"{module}.{name}" else "") + f"::: {path}\n"
    elsewhere = f" In full: [{path}][]." if path.startswith("delegraph") else ""
    return f"## {name} {{ #{module}.{name} }}\n\n{summary(module, name)}{elsewhere}\n"
