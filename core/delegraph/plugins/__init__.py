"""Who offers what: discovery through entry points, hook specs, registries and diagnosis.

    entry points ── discovery ──> offers ── registry ──> loaded, validated objects ── bound ──> callables

Importing this package costs nothing; each name below loads its module when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from delegraph.plugins.discovery import Offer
    from delegraph.plugins.registry import PluginRegistry, default_registry, use_registry
    from delegraph.plugins.tools import PluginWarning, hookimpl
    from delegraph.plugins.versions import PLUGIN_API

__all__ = [
    "PLUGIN_API",
    "Offer",
    "PluginRegistry",
    "PluginWarning",
    "default_registry",
    "hookimpl",
    "use_registry",
]

_HOME = {
    "PLUGIN_API": "versions",
    "Offer": "discovery",
    "PluginRegistry": "registry",
    "PluginWarning": "tools",
    "default_registry": "registry",
    "hookimpl": "tools",
    "use_registry": "registry",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
