"""A backend that a file needs and nobody offers -> what to do about it, by its blob's stamp and what is installed.

A stamp is a stranger's word: it is told, in quotes, but never becomes advice to install what it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delegraph.interfaces.stamp import BlobStamp
from delegraph.plugins.discovery import did_you_mean, normalised

if TYPE_CHECKING:
    from delegraph.plugins.registry import PluginRegistry

__all__ = ["INSTALL", "missing_remedy"]


def missing_remedy(backend_id: str, stamp: BlobStamp | None, plugins: PluginRegistry) -> str:
    """The remedy for a missing `backend_id`, in words."""
    if stamp is None:
        return f"its blob carries no stamp that would name its distribution; {INSTALL}"
    origin = f"the file says that its blob was made by {stamp.distribution!r:.80} {stamp.version!r:.40}"
    version = installed_version(stamp.distribution)
    if version is None:
        return f"{origin}, which is not installed; {INSTALL}"
    offers = [offer for offer in plugins.offers() if normalised(offer.distribution) == normalised(stamp.distribution)]
    ids = [offer.name for offer in offers if offer.group == "delegraph.backends"]
    offered = ", ".join(offer.id for offer in offers) or "nothing that Delegraph knows"
    if version != stamp.version:
        return f"{origin}; {stamp.distribution} {version}, which is installed, offers {offered}: another release may do"
    return (
        f"{origin}, which is installed but has no runtime half of that name: it offers {offered}"
        f"{did_you_mean(backend_id, ids)}; its authors add the entry point {backend_id!r} in delegraph.backends"
    )


INSTALL: Final = "install the distribution that offers this backend, from where you trust it"
"""The remedy for a backend that is missing."""


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, or None."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except (metadata.PackageNotFoundError, ValueError):
        return None
