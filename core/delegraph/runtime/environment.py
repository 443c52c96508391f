"""What a program may use where it runs: kernels, backends, tools, the machine, and how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from delegraph.interfaces.backend import BackendInterface
from delegraph.interfaces.platform import DEFAULT_PLATFORM, Platform
from delegraph.runtime.backends import BackendRegistry
from delegraph.runtime.kernels import KernelOrder, KernelRegistry
from delegraph.runtime.limits import DEFAULT_LIMITS, Limits

if TYPE_CHECKING:
    from delegraph.plugins.registry import PluginRegistry


@dataclass(frozen=True, slots=True)
class Environment:
    """Explicit choices; whatever is None is what is installed.

    `kernels` are libraries or their names, in order of preference, or such orders by operator; `backends` are used for
    their ids in place of installed ones; `plugins` is where installed ones are found (None: the process's registry).
    `check` says whether calls are watched (`checking.py`; None: as the environment variable does).
    """

    kernels: KernelOrder | None = None
    backends: Mapping[str, BackendInterface] | None = None
    plugins: PluginRegistry | None = None
    platform: Platform = DEFAULT_PLATFORM
    limits: Limits = DEFAULT_LIMITS
    check: bool | None = None

    def plugin_registry(self) -> PluginRegistry:
        """Where installed plug-ins are found."""
        if self.plugins is not None:
            return self.plugins
        from delegraph.plugins.registry import default_registry

        return default_registry()

    def kernel_registry(self) -> KernelRegistry:
        """The kernel libraries to ask. Raises a `PluginError` for a name that cannot be loaded."""
        return KernelRegistry.of(self.kernels, self.plugin_registry())

    def backend_registry(self) -> BackendRegistry:
        """The backends to ask."""
        return BackendRegistry(self.plugin_registry(), self.backends or {})


def platform_called(platform: Platform | str, plugins: PluginRegistry | None) -> Platform:
    """`platform`, or that which is installed under this name. Raises a `PluginError`."""
    if isinstance(platform, Platform):
        return platform
    from delegraph.plugins.loader import failure

    registry = Environment(plugins=plugins).plugin_registry()
    factory, offer = registry.load("delegraph.platforms", platform), registry.find("delegraph.platforms", platform)
    try:
        made: object = factory()
    except Exception as error:
        raise failure(offer, f"it raised {type(error).__name__}: {error}", "report it to its authors") from error
    if not isinstance(made, Platform):
        raise failure(offer, f"it made {made!r:.80}, which is not a Platform", "its authors return what fits")
    return made


def preferring(plugins: PluginRegistry | None, prefer: Mapping[str, str] | None) -> PluginRegistry | None:
    """`plugins` (None: the process's registry) with the preferences `prefer`. Raises as `PluginRegistry.preferring`."""
    if not prefer:
        return plugins
    return Environment(plugins=plugins).plugin_registry().preferring(prefer)
