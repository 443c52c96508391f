"""A page's HTML -> the same with every public name in it leading to its place in the reference."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from tools.site.api_page import PUBLIC, names_of, origin

__all__ = ["anchor", "home", "linked"]

_CODE: Final = re.compile(
    r"<(a|pre|h[1-6]|autoref)\b.*?</\1>|<code>(?P<text>(?P<name>[A-Za-z_][\w.]*)(?:\([^<]*\))?)</code>", re.DOTALL
)
"""Links, headings and blocks stay as they are; a name may have arguments behind it."""


def linked(html: str) -> str:
    """`html` with the names that are code, and ours, as references that the site's builder resolves if it can."""
    return _CODE.sub(_reference, html)


def _reference(code: re.Match[str]) -> str:
    path = _path(code["name"] or "")
    return f'<autoref optional identifier="{path}">{code[0]}</autoref>' if path else code[0]


def _path(name: str) -> str:
    """Where a name is in the reference: one in full, or a class's own or with a member; "" if it may be another's."""
    known, (first, _, member) = _anchors(), name.partition(".")
    if name in known:
        return known[name] if "." in name or not name.islower() else ""
    return f"{known[first]}.{member}" if first in known and member and not first.islower() else ""


def home(module: str, name: str) -> str:
    """The public module whose page has `module`'s `name` in full, "" for another project's.

    The module that defines it; else `delegraph` itself, the innermost package around that module, or any that has it.
    """
    return _homes().get(origin(module, name), "")


def anchor(module: str, name: str) -> str:
    """The anchor of a name of ours in the reference: where it is defined."""
    return ".".join(origin(module, name))


@cache
def _homes() -> dict[tuple[str, str], str]:
    offered: dict[tuple[str, str], list[str]] = {}
    for module in PUBLIC:
        for name in names_of(module):
            if anchor(module, name).startswith("delegraph"):
                offered.setdefault(origin(module, name), []).append(module)
    return {path: max(modules, key=lambda module: _nearness(module, path[0])) for path, modules in offered.items()}


def _nearness(module: str, defined: str) -> tuple[bool, bool, int]:
    around = defined == module or defined.startswith(f"{module}.")
    return (defined == module, module == "delegraph", len(module) if around else 0)


@cache
def _anchors() -> dict[str, str]:
    """Anchors by a name's every path, and by its last part where only one has that."""
    offered = [(module, name) for module in PUBLIC for name in names_of(module) if home(module, name)]
    paths = {f"{module}.{name}": anchor(module, name) for module, name in offered}
    by_name: dict[str, set[str]] = {}
    for path, place in paths.items():
        by_name.setdefault(path.rpartition(".")[2], set()).add(place)
    return paths | {name: places.pop() for name, places in by_name.items() if len(places) == 1}
