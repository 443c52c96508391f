"""A backend that a file needs and nobody offers -> what to do about it, by its blob's stamp and what is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegraph.interfaces.stamp import BlobStamp
from delegraph.plugins.discovery import did_you_mean, normalised

if TYPE_CHECKING:
    from delegraph.plugins.registry import PluginRegistry

__all__ = ["missing_remedy"]


def missing_remedy(backend_id: str, stamp: BlobStamp | None, plugins: PluginRegistry) -> str:
    """What to do so that `backend_id` is there. `pip install` is no remedy for what is installed and lacks a half."""
    if stamp is None:
        return "its blob carries no stamp that would name its distribution; install the one that offers this backend"
    made = f"its blob was made by {stamp.distribution} {stamp.version}"
    version = installed_version(stamp.distribution)
    if version is None:
        return f"{made}: `pip install {stamp.distribution}=={stamp.version}`, or a later one that still reads it"
    offers = [one for one in plugins.offers() if normalised(one.distribution) == normalised(stamp.distribution)]
    ids = [one.name for one in offers if one.group == "delegraph.backends"]
    offered = ", ".join(one.id for one in offers) or "nothing that Delegraph knows"
    if version != stamp.version:
        return (
            f"{made}; {stamp.distribution} {version}, which is installed, offers {offered}:"
            f" `pip install {stamp.distribution}=={stamp.version}`"
        )
    return (
        f"{made}, which is installed but has no runtime half of that name: it offers {offered}"
        f"{did_you_mean(backend_id, ids)}; its authors add the entry point {backend_id} in delegraph.backends"
    )


def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution, or None."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except (metadata.PackageNotFoundError, ValueError):
        return None
