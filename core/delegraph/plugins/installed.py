"""Offers -> the text of `delegraph --version`: every distribution with its version and the plug-in API that it needs.

Nothing is imported.
"""

from __future__ import annotations

from delegraph.lazy_dataclass import dataclass
from delegraph.plugins.discovery import HOST, Offer, scan
from delegraph.plugins.source import written
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
    return [Installed(*who, max(written(offer).api for offer in theirs)) for who, theirs in sorted(offers.items())]
