"""Tools: pluggy plug-ins that wrap backends' hooks or watch the events of lowering and loading.

This is the only module that imports pluggy, and it is loaded only where a tool is installed. A tool's wrappers are
bound around a backend's method when that is bound: `bound` returns one callable, and nothing is looked up per call.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from inspect import isgeneratorfunction
from typing import TYPE_CHECKING, Any

import pluggy

from delegraph.errors import PluginError
from delegraph.plugins.discovery import Offer, did_you_mean
from delegraph.plugins.hookspecs import GROUPS, Group
from delegraph.plugins.validation import parameters

if TYPE_CHECKING:
    from delegraph.plugins.registry import PluginRegistry

__all__ = ["PluginWarning", "Tools", "hookimpl", "load_tools", "tool_faults"]

hookimpl = pluggy.HookimplMarker("delegraph")
"""Marks a tool's functions as implementations of the hooks in `hookspecs.ToolHooks`."""

_TOOLS = GROUPS["delegraph.plugins"]

WRAPPABLE = frozenset({"preprocess", "preprocess_multimethod", "init", "execute", "destroy"})
"""What a tool may surround; the other hooks of `ToolHooks` are events."""


class PluginWarning(UserWarning):
    """A tool could not be loaded, or raised while it watched; everything else went on without it."""


class _Manager(pluggy.PluginManager):
    """A pluggy manager with the methods of `ToolHooks` for specs; its `subject` needs no marker on `hook`."""

    def __init__(self, subject: object = None, hook: str = "") -> None:
        super().__init__("delegraph")
        self._subject = subject
        self._hook = hook
        self.add_hookspecs(_TOOLS.hooks)

    def parse_hookspec_opts(self, module_or_class: Any, name: str) -> pluggy.HookspecOpts | None:
        if name not in _TOOLS.hook_names:
            return None
        return {"firstresult": name in WRAPPABLE, "historic": False, "warn_on_impl": None, "warn_on_impl_args": None}

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> pluggy.HookimplOpts | None:
        if self._subject is not None and plugin is self._subject:
            return _PLAIN if name == self._hook else None
        return super().parse_hookimpl_opts(plugin, name)


_PLAIN: pluggy.HookimplOpts = {
    "wrapper": False,
    "hookwrapper": False,
    "optionalhook": False,
    "tryfirst": False,
    "trylast": False,
    "specname": None,
}


def tool_faults(tool: Any) -> list[str]:
    """What is wrong with a tool: no marks, an unknown hook, parameters that the spec lacks, a wrapper that is none."""
    manager = pluggy.PluginManager("delegraph")  # without specs, so that every fault is ours to tell
    manager.register(tool)
    hooks = [
        (hook.name, implementation)
        for hook in manager.get_hookcallers(tool) or ()
        for implementation in hook.get_hookimpls()
    ]
    if not hooks:
        return ["it marks no function with @delegraph.plugins.hookimpl"]
    return [fault for name, implementation in hooks if (fault := _hook_fault(name, implementation))]


def _hook_fault(name: str, implementation: pluggy.HookImpl) -> str:
    if name not in _TOOLS.hook_names:
        return f"it implements {name}(), which is no hook{did_you_mean(name, _TOOLS.hook_names)}"
    known, taken = parameters(_TOOLS, name), implementation.argnames
    if not set(taken) <= set(known):
        return f"its signature is {name}({', '.join(taken)}); it has to be some of {name}({', '.join(known)})"
    if implementation.wrapper and not isgeneratorfunction(implementation.function):
        return f"its wrapper {name}() never yields"
    if implementation.wrapper != (name in WRAPPABLE):
        may = "may only be wrapped: @hookimpl(wrapper=True)" if name in WRAPPABLE else "is an event: nothing to wrap"
        return f"it implements {name}(), which {may}"
    return ""


class Tools:
    """The tools of one registry."""

    def __init__(self, tools: Mapping[Offer, Any]) -> None:
        self._tools = dict(tools)
        self._watchers = self._manager_of()
        self._wrapped = frozenset(name for name in WRAPPABLE if getattr(self._watchers.hook, name).get_hookimpls())

    def wraps(self, hook: str) -> bool:
        """Whether some tool surrounds `hook`."""
        return hook in self._wrapped

    def bound(self, group: Group, offer: Offer, plugin: Any, hook: str) -> Callable[..., Any]:
        """`plugin`'s `hook` with the wrappers around it, to be called by position."""
        caller = getattr(self._manager_of(plugin, hook).hook, hook)
        names = parameters(group, hook)

        def call(*args: Any) -> Any:
            return caller(plugin=offer, **dict(zip(names, args, strict=True)))

        return call

    def notify(self, event: str, details: Mapping[str, Any]) -> None:
        """Call every watcher of `event`, each by itself, so that one that raises keeps no other from hearing of it."""
        assert event in _TOOLS.hook_names, event
        assert event not in WRAPPABLE, event
        for watcher in reversed(getattr(self._watchers.hook, event).get_hookimpls()):
            try:
                watcher.function(*(details[name] for name in watcher.argnames))
            except Exception as error:
                told = f"{watcher.plugin_name} raised at {event}: {type(error).__name__}: {error}"
                warnings.warn(told, PluginWarning, stacklevel=3)

    def _manager_of(self, subject: Any = None, hook: str = "") -> _Manager:
        manager = _Manager(subject, hook)
        if subject is not None:
            manager.register(subject)
        for offer, tool in self._tools.items():
            manager.register(tool, name=str(offer))
        return manager


_building = threading.local()


def load_tools(registry: PluginRegistry) -> Tools | None:
    """Every tool of `registry` that loads; one that does not is reported by a `PluginWarning`.

    None while this thread is at it already: a tool that uses the registry as it is imported meets no tools.
    """
    if getattr(_building, "active", False):
        return None
    _building.active = True
    try:
        loaded = {offer: _load(registry, offer) for offer in registry.offers("plugins")}
        return Tools({offer: tool for offer, tool in loaded.items() if tool is not None})
    finally:
        _building.active = False


def _load(registry: PluginRegistry, offer: Offer) -> Any:
    try:
        return registry.load("plugins", offer.name)
    except PluginError as error:
        warnings.warn(f"going on without a tool: {error}", PluginWarning, stacklevel=6)
        return None
