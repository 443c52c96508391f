"""A name and the installed plug-ins -> `Subject`s: those that the name means, each with its author's claims."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Self

from delegraph.errors import PluginNotFound
from delegraph.plugins import Offer, PluginRegistry, default_registry, package_folder
from delegraph_testkit.claims import Claims, ClaimsWarning

__all__ = ["Kind", "Subject", "subjects_called"]


class Kind(Enum):
    """The kind of plug-in that is proven."""

    BACKEND = "backend"
    KERNELS = "kernels"
    PARTITIONER = "partitioner"
    QUANTIZER = "quantizer"
    PASS = "pass"
    PLANNER = "planner"
    TOOL = "tool"


_GROUPS = {
    Kind.KERNELS: "kernels",
    Kind.QUANTIZER: "quantizers",
    Kind.PASS: "passes",
    Kind.PLANNER: "memory_planners",
    Kind.TOOL: "plugins",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """The plug-in that is to be proven. `name` is its entry point's: of a backend, that of its partitioner, as
    users write it."""

    kind: Kind
    name: str
    claims: Claims = field(default_factory=Claims)

    @property
    def group(self) -> str:
        """The entry-point group in which `name` stands."""
        return _GROUPS.get(self.kind, "partitioners")

    def to_mapping(self) -> dict[str, Any]:
        """The mapping for a process that checks it."""
        return {"kind": self.kind.value, "name": self.name, "claims": self.claims.to_mapping()}

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any]) -> Self:
        return cls(Kind(content["kind"]), content["name"], Claims.from_mapping(content["claims"]))


def subjects_called(name: str, claims: Claims | None = None, registry: PluginRegistry | None = None) -> list[Subject]:
    """The provable plug-ins installed as `name`: an entry point, its id (`partitioners:acme`), or a whole distribution.

    `claims` go before those that lie beside a plug-in; a backend or kernel library without any is a `ClaimsWarning`.
    Raises `PluginNotFound` if there is nothing to prove.
    """
    registry = registry or default_registry()
    named = [offer for offer in registry.offers() if offer.is_called(name)]
    whole = {offer.distribution for offer in registry.offers("backends") if offer in named}
    named += [offer for offer in registry.offers("partitioners") if offer.distribution in whole and offer not in named]
    provable = [(kind, offer) for offer in named if (kind := _kind(offer, registry)) is not None]
    if not provable:
        raise PluginNotFound(
            f"nothing installed is called {name!r} that could be proven: a partitioner, kernel library, quantizer,"
            " pass, memory planner or tool; `delegraph plugins list` shows what is there"
        )
    return [
        Subject(kind, offer.name, _claims_beside(kind, offer) if claims is None else claims) for kind, offer in provable
    ]


def _kind(offer: Offer, registry: PluginRegistry) -> Kind | None:
    if offer.group == "delegraph.partitioners":
        halves = [*registry.offers("backends"), *registry.offers("lowerings")]
        has_backend = any(half.distribution == offer.distribution for half in halves)
        return Kind.BACKEND if has_backend else Kind.PARTITIONER
    return next((kind for kind, group in _GROUPS.items() if offer.group == f"delegraph.{group}"), None)


def _claims_beside(kind: Kind, offer: Offer) -> Claims:
    """Those in `conformance_NAME.toml`, or in `conformance.toml`, beside the top package's `__init__.py`; without
    either, none and a warning."""
    folder = package_folder(offer)
    file = folder / "conformance.toml" if folder is not None else None
    for place in () if file is None else (file.with_name(f"conformance_{offer.name}.toml"), file):
        if place.is_file():
            return Claims.read(place)
    if kind in (Kind.BACKEND, Kind.KERNELS):
        missing = (
            f"there is no {file}" if file is not None else f"{offer.value} is in no package with a conformance.toml"
        )
        told = f"{offer.id} is proven without claims, so that no operator is tried: {missing}; claims = {{}} says so"
        warnings.warn(told, ClaimsWarning, stacklevel=3)
    return Claims()
