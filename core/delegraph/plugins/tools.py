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
    """A pluggy manager whose specs are the plain methods of `ToolHooks`."""

    def __init__(self) -> None:
        super().__init__("delegraph")
        self.add_hookspecs(_TOOLS.hooks)

    def parse_hookspec_opts(self, module_or_class: Any, name: str) -> pluggy.HookspecOpts | None:
        if name not in _TOOLS.hook_names:
            return None
        return {"firstresult": name in WRAPPABLE, "historic": False, "warn_on_impl": None, "warn_on_impl_args": None}


class _Wrapped:
    """A plug-in as pluggy wants it: by the hooks' own parameter names, whatever its author calls them."""

    def __init__(self, plugin: Any) -> None:
        self._plugin = plugin

    @hookimpl
    def preprocess(self, edge_program: Any, compile_specs: Any) -> Any:
        return self._plugin.preprocess(edge_program, compile_specs)

    @hookimpl
    def preprocess_multimethod(self, edge_programs: Any, compile_specs: Any) -> Any:
        return self._plugin.preprocess_multimethod(edge_programs, compile_specs)

    @hookimpl
    def init(self, context: Any, processed: Any, compile_specs: Any) -> Any:
        return self._plugin.init(context, processed, compile_specs)

    @hookimpl
    def execute(self, context: Any, handle: Any, args: Any) -> Any:
        return self._plugin.execute(context, handle, args)

    @hookimpl
    def destroy(self, handle: Any) -> Any:
        return self._plugin.destroy(handle)


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
        caller = getattr(self._manager_of(_Wrapped(plugin)).hook, hook)
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

    def _manager_of(self, *subjects: Any) -> _Manager:
        manager = _Manager()
        for subject in subjects:
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
        loaded, broken = registry.load_all("plugins")
    finally:
        _building.active = False
    for error in broken:
        warnings.warn(f"going on without a tool: {error}", PluginWarning, stacklevel=5)
    return Tools({registry.find("plugins", name): tool for name, tool in loaded.items()})
