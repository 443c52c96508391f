"""Backend ids -> backends: those that a caller hands in, and those that are installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from delegraph.errors import PluginError

if TYPE_CHECKING:
    from delegraph.interfaces.backend import Availability, BackendInterface
    from delegraph.plugins.registry import PluginRegistry

__all__ = ["GROUP", "BackendRegistry"]

GROUP: Final = "delegraph.backends"


class BackendRegistry:
    """Backends by id: `overrides`, then those of `plugins`. Imports a backend when it is asked for."""

    def __init__(self, plugins: PluginRegistry, overrides: Mapping[str, BackendInterface] | None = None) -> None:
        self.plugins = plugins
        self._overrides = dict(overrides or {})

    @property
    def registered_backend_names(self) -> list[str]:
        """Every id that can be asked for, sorted."""
        return sorted({*self._overrides, *self.plugins.names(GROUP)})

    def is_available(self, backend_name: str) -> Availability:
        """Whether the backend is installed, loads, and finds its device; if not, why. Never raises."""
        from delegraph.interfaces.backend import Availability

        try:
            return Availability.of(self.get(backend_name))
        except PluginError as error:
            return Availability(False, str(error))

    def get(self, backend_id: str) -> BackendInterface:
        """The backend. Raises a `PluginError`."""
        override = self._overrides.get(backend_id)
        if override is not None:
            return override
        backend: BackendInterface = self.plugins.load(GROUP, backend_id)
        return backend
