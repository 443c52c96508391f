"""A name and the installed plug-ins -> `Subject`s: those that the name means, each with its author's claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from delegraph.errors import PluginNotFound
from delegraph.plugins import Offer, PluginRegistry, default_registry
from delegraph_testkit.claims import Claims

__all__ = ["Kind", "Subject", "claims_beside", "subjects_called"]


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

    `claims` go before those that lie beside a plug-in. Raises `PluginNotFound` if there is nothing to prove.
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
    return [Subject(kind, offer.name, claims or claims_beside(offer)) for kind, offer in provable]


def _kind(offer: Offer, registry: PluginRegistry) -> Kind | None:
    if offer.group == "delegraph.partitioners":
        halves = [*registry.offers("backends"), *registry.offers("lowerings")]
        has_backend = any(half.distribution == offer.distribution for half in halves)
        return Kind.BACKEND if has_backend else Kind.PARTITIONER
    return next((kind for kind, group in _GROUPS.items() if offer.group == f"delegraph.{group}"), None)


def claims_beside(offer: Offer) -> Claims:
    """Those in the `conformance.toml` beside the top package's `__init__.py`; none if there is no such file."""
    spec = find_spec(offer.value.partition(":")[0].partition(".")[0])
    folders: Sequence[str] = spec.submodule_search_locations or () if spec is not None else ()
    for folder in folders:
        file = Path(folder, "conformance.toml")
        if file.is_file():
            return Claims.read(file)
    return Claims()
