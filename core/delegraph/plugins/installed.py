"""Offers -> what `delegraph --version` prints: every distribution with its version and the plug-in API that it needs.

Nothing is imported: an API is read where the source of the plug-in's module says `delegraph_api = (1, 0)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from delegraph.plugins.discovery import HOST, Offer, scan
from delegraph.plugins.inventory import module_spec
from delegraph.plugins.loader import reference
from delegraph.plugins.versions import ApiVersion

__all__ = ["Installed", "installed"]


@dataclass(frozen=True, slots=True)
class Installed:
    """A distribution with plug-ins, and the highest plug-in API that one of them names as the lowest it needs."""

    distribution: str
    version: str
    api: ApiVersion


def installed() -> list[Installed]:
    """The distributions that offer plug-ins, the host left out, sorted by name."""
    offers: dict[tuple[str, str], list[Offer]] = {}
    for offer in scan():
        if offer.distribution != HOST:
            offers.setdefault((offer.distribution, offer.version), []).append(offer)
    return [Installed(*who, max(map(_api, theirs))) for who, theirs in sorted(offers.items())]


def _api(offer: Offer) -> ApiVersion:
    """The higher of what the plug-in's class and its module name; (1, 0), as for the loader, if neither does."""
    module, attribute = reference(offer.value) or ("", "")
    try:
        spec = module_spec(module) if module else None
        tree = ast.parse(Path(spec.origin).read_bytes()) if spec and spec.origin else ast.Module([], [])
    except (KeyError, OSError, SyntaxError, ValueError):  # what is wrong with it, `delegraph plugins doctor` tells
        return (1, 0)
    named = [body.body for body in tree.body if isinstance(body, ast.ClassDef) and body.name == attribute]
    return max((api for body in [*named, tree.body] for api in _declared(body)), default=(1, 0))


def _declared(body: Iterable[ast.stmt]) -> Iterator[ApiVersion]:
    for statement in body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id="delegraph_api")], value=ast.Tuple(elts=parts))
                | ast.AnnAssign(target=ast.Name(id="delegraph_api"), value=ast.Tuple(elts=parts))
            ):
                match parts:
                    case [ast.Constant(value=int(major)), ast.Constant(value=int(minor))]:
                        yield major, minor
