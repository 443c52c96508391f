"""Who offers what: discovery through entry points, hook specs, registries and diagnosis.

    entry points ── discovery ──> offers ── registry ──> loaded, validated objects ── bound ──> callables

Importing this package costs nothing; each name below loads its module when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delegraph.lazy import lazy_names

if TYPE_CHECKING:
    from delegraph.deprecation import PluginDeprecationWarning
    from delegraph.errors import PluginWarning
    from delegraph.plugins.discovery import Offer
    from delegraph.plugins.inventory import package_folder
    from delegraph.plugins.registry import PluginRegistry, default_registry, use_registry
    from delegraph.plugins.tools import hookimpl
    from delegraph.plugins.versions import PLUGIN_API

__all__ = [
    "PLUGIN_API",
    "Offer",
    "PluginDeprecationWarning",
    "PluginRegistry",
    "PluginWarning",
    "default_registry",
    "hookimpl",
    "package_folder",
    "use_registry",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "delegraph.deprecation": ("PluginDeprecationWarning",),
        "delegraph.errors": ("PluginWarning",),
        "delegraph.plugins.discovery": ("Offer",),
        "delegraph.plugins.inventory": ("package_folder",),
        "delegraph.plugins.registry": ("PluginRegistry", "default_registry", "use_registry"),
        "delegraph.plugins.tools": ("hookimpl",),
        "delegraph.plugins.versions": ("PLUGIN_API",),
    },
)
