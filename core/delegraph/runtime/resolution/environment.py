"""The means that a program may use where it runs: kernels, backends, tools, the machine, and how much of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from delegraph.errors import cause_of
from delegraph.interfaces.platform import DEFAULT_PLATFORM, Platform
from delegraph.lazy_dataclass import dataclass
from delegraph.program.limits import DEFAULT_LIMITS, Limits
from delegraph.runtime.resolution.backends import BackendRegistry
from delegraph.runtime.resolution.kernels import KernelOrder, KernelRegistry

if TYPE_CHECKING:
    from delegraph.interfaces.backend import BackendInterface
    from delegraph.interfaces.compilation_cache import CacheChoice
    from delegraph.plugins.registry import PluginRegistry


@dataclass(frozen=True, slots=True)
class Environment:
    """Explicit choices; None stands for everything that is installed.

    `kernels` are libraries or their names, in order of preference, or such orders by operator; `backends` are used for
    their ids in place of installed ones; `plugins` is where installed ones are found (None: the process's registry).
    `check` says whether calls are watched (`checking.py`; None: as the environment variable does). `prefer` are the
    preferences that made `plugins` of the process's registry; such an environment can be sent to another process.
    `cache` is where backends keep what they compile at load (`CompilationCache.of`).
    """

    kernels: KernelOrder | None = None
    backends: Mapping[str, BackendInterface] | None = None
    plugins: PluginRegistry | None = None
    platform: Platform = DEFAULT_PLATFORM
    limits: Limits = DEFAULT_LIMITS
    check: bool | None = None
    prefer: Mapping[str, str] | None = None
    cache: CacheChoice = None

    @classmethod
    def of(
        cls,
        kernels: KernelOrder | None = None,
        backends: Mapping[str, BackendInterface] | None = None,
        plugins: PluginRegistry | None = None,
        prefer: Mapping[str, str] | None = None,
        platform: Platform | str = DEFAULT_PLATFORM,
        limits: Limits | None = None,
        check: bool | None = None,
        cache: CacheChoice = None,
    ) -> Environment:
        """The environment of a caller's choices: `plugins` with the preferences `prefer`; `platform`, or its name.

        Raises a `PluginError` for a platform, or a preference, that is not there.
        """
        registry = Environment(plugins=plugins).plugin_registry().preferring(prefer) if prefer else plugins
        again = dict(prefer) if prefer and plugins is None else None
        chosen = _platform_called(platform, registry)
        return cls(kernels, backends, registry, chosen, limits or DEFAULT_LIMITS, check, again, cache)

    @property
    def checks_calls(self) -> bool:
        """Whether calls are watched: as was said, else as the environment variable says."""
        return os.environ.get("DELEGRAPH_CHECK", "") not in ("", "0") if self.check is None else self.check

    @property
    def has_own_plugins(self) -> bool:
        """Whether the caller gave a registry, so that another process does not have it."""
        return self.plugins is not None and self.prefer is None

    def __reduce__(self) -> tuple[Any, ...]:
        plugins = self.plugins if self.has_own_plugins else None
        chosen = (self.kernels, self.backends, plugins, self.prefer, self.platform, self.limits, self.check, self.cache)
        return Environment.of, chosen

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


def _platform_called(platform: Platform | str, plugins: PluginRegistry | None) -> Platform:
    """`platform`, or that which is installed under this name. Raises a `PluginError`."""
    if isinstance(platform, Platform):
        return platform
    from delegraph.plugins.loader import failure

    registry = Environment(plugins=plugins).plugin_registry()
    factory, offer = registry.load("delegraph.platforms", platform), registry.find("delegraph.platforms", platform)
    try:
        created: object = factory()
    except Exception as error:
        raise failure(offer, f"it raised {cause_of(error)}", "report it to its authors") from error
    if not isinstance(created, Platform):
        raise failure(offer, f"it made {created!r:.80}, which is not a Platform", "its authors return what fits")
    return created
