"""A page's Markdown -> the same with the links that leave docs/ leading to the site's page, or else to the repository.

Pages are written to be read in the repository as well: there they link to each other by their files.
"""

from __future__ import annotations

import posixpath
import re
from typing import Final

__all__ = ["AROUND", "SOURCE", "links", "rewritten"]

SOURCE: Final = "https://github.com/delegraph/delegraph/blob/main/"

AROUND: Final = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "SECURITY.md": "security.md",
}
"""Pages of the site that lie beside docs/, by their files."""

_LINK: Final = re.compile(r"(?<=\]\()([^)#:\s]+)((?:#[^)\s]*)?)(?=\))")
_CODE: Final = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def rewritten(markdown: str, page: str) -> str:
    """`markdown` of the site's `page`, a path below docs/, with links for the site. Code stays as it is."""
    folder = _folder(page)
    kept, last = [], 0
    for code in _CODE.finditer(markdown):
        kept += [_LINK.sub(lambda link: _target(link, folder, page), markdown[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*kept, _LINK.sub(lambda link: _target(link, folder, page), markdown[last:])])


def links(markdown: str) -> list[tuple[str, str]]:
    """The relative links in `markdown`: path and, with its `#`, anchor; those in code are left out."""
    return [(link[1], link[2]) for link in _LINK.finditer(_CODE.sub("", markdown))]


def _folder(page: str) -> str:
    """The folder of the repository in which `page` is written."""
    return "" if page in AROUND.values() and page != "index.md" else posixpath.dirname(f"docs/{page}")


def _target(link: re.Match[str], folder: str, page: str) -> str:
    path = posixpath.normpath(posixpath.join(folder, link[1]))
    inside = AROUND.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if inside is None:
        return SOURCE + path + link[2]
    return posixpath.relpath(inside, posixpath.dirname(page) or ".") + link[2]
